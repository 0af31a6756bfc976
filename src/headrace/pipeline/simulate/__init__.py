"""`headrace pipeline simulate`: the event log and the recordings of a server that never ran.

A simulation is a plan (who publishes, relays and watches when, and what goes wrong) and functions that tell what any
stream had come to at any time. Both are pure, so every stretch of the log can be written by itself, by any process.
"""
