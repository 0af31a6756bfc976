"""The data pipeline on Apache Spark: sources, tables and jobs. Everything that needs PySpark is here, and only here.

May use the pure packages (`protocol`, `stream`, `telemetry`) inside executors; knows nothing of a running server.
"""
