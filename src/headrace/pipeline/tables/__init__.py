"""The tables: each a pure `build(inputs) -> DataFrame` with a declared SCHEMA, in a file of its own.

Rows come from their inputs alone. Reading, writing and which streams to build is the jobs' business.
"""
