"""The places that a lake may lie in: a disk, HDFS, an object store."""
