#!/bin/sh
# Runs a class of Kafka with all its jars: kafka-run-class.sh CLASS [ARGUMENT…]
# KAFKA_HEAP_OPTS, KAFKA_LOG4J_OPTS, KAFKA_JVM_PERFORMANCE_OPTS and KAFKA_OPTS are added to the JVM's options.
kafka=$(cd "$(dirname "$0")/.." && pwd)

if [ -z "$KAFKA_LOG4J_OPTS" ]; then
    if [ -e "$kafka/config/tools-log4j2.properties" ]; then
        KAFKA_LOG4J_OPTS="-Dlog4j2.configurationFile=$kafka/config/tools-log4j2.properties"
    else
        KAFKA_LOG4J_OPTS="-Dlog4j.configuration=file:$kafka/config/tools-log4j.properties"
    fi
fi

# The archive of classes is for this list, in this order.
CLASSPATH=$(printf '%s:' "$kafka"/libs/*.jar)
export CLASSPATH="${CLASSPATH%:}"
[ -e "$kafka/kafka.jsa" ] && KAFKA_OPTS="-XX:SharedArchiveFile=$kafka/kafka.jsa $KAFKA_OPTS"

# A tool lives for seconds: the simplest collector and compiler start it soonest.
# shellcheck disable=SC2086 # each variable may hold several options
exec java ${KAFKA_HEAP_OPTS:--Xmx256M} \
    ${KAFKA_JVM_PERFORMANCE_OPTS:--XX:+UseSerialGC -XX:TieredStopAtLevel=1} \
    $KAFKA_LOG4J_OPTS $KAFKA_OPTS "$@"
