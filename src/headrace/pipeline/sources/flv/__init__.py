"""`spark.read.format("flv")` and `spark.readStream.format("flv")`: one row per tag of an FLV file (Adobe FLV 10.1, E).

    from headrace.pipeline.sources.flv.source import register
    register(spark)
    tags = spark.read.format("flv").load("recordings/")
    problems = spark.read.format("flv").option("rows", "problems").load("recordings/")

Columns are in `schema`, options in `options`. The rest in reading order: `listing` (which files there are), `files`
(their bytes), `chain` (which bytes are a tag), `walk` (a file's tags in order, and how a large file is split), `facts`
and `columns` (tags to Arrow), `reading` (what a task does), `pieces` (files to tasks), `filters` (which rows and
files), `offsets` (how far a stream has read), `source`. What plans a read, from `pieces` on and `listing`, imports no
numpy.
"""
