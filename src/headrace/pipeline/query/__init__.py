"""SQL over the tables of a lake: `headrace query`. Reads, and changes nothing.

DuckDB answers, inside this process; Spark does where a master is named. PySpark is imported only then.
"""
