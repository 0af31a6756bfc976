"""A session of Spark without what its machine learning adds to each: 0.7 s of a start, for functions nobody calls here.

Spark looks for extensions of a session in every library that it brings, and one of them is of its machine learning.
No setting leaves that out, but it asks the class loader of the thread that makes the session. So it is made by a thread
whose class loader knows of no extensions. Owns that, and when it must not be done: where anybody brings libraries or
names extensions of their own.
"""

from __future__ import annotations

from typing import Any

from py4j.clientserver import ClientServer
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession

_OWN = ("spark.sql.extensions", "spark.jars", "spark.jars.packages", "spark.driver.extraClassPath")


def make_bare_session(context: SparkContext) -> SparkSession | None:
    """The first of a context; None where extensions might be wanted."""
    gateway: Any = context._gateway
    # Only this kind of gateway has a thread of the JVM for each of ours.
    if not isinstance(gateway, ClientServer) or any(context.getConf().contains(key) for key in _OWN):
        return None
    try:
        return SparkSession(context, _make(context._jvm, gateway, context._jsc.sc()))
    except Py4JError:  # another Spark, where that cannot be done so
        return None


def _make(jvm: Any, gateway: Any, context: Any) -> Any:
    find_class = jvm.java.lang.Class.forName
    kinds, values = gateway.new_array(jvm.java.lang.Class, 2), gateway.new_array(jvm.java.lang.Object, 2)
    kinds[0], kinds[1] = find_class("org.apache.spark.SparkContext"), find_class("java.util.HashMap")
    values[0], values[1] = context, jvm.java.util.HashMap()
    # By reflection, because py4j asks the same class loader for a class that it is told the name of.
    constructor = find_class("org.apache.spark.sql.classic.SparkSession").getConstructor(kinds)
    thread = jvm.java.lang.Thread.currentThread()
    own_loader = thread.getContextClassLoader()
    thread.setContextClassLoader(jvm.java.lang.ClassLoader.getPlatformClassLoader())
    try:
        return constructor.newInstance(values)
    finally:
        thread.setContextClassLoader(own_loader)
