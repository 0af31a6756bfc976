"""Reports: what the tables say of one broadcast, for a person. A broadcast is one stream_id of one node.

No JVM: parquet is read by pyarrow. The way of a report is `choosing` (which broadcast) → `tables` (its rows) → `gather`
(rows to `facts`) → `html`, `text` or `as_json`. From `facts` on everything is pure.
"""
