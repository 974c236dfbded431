# Runs a Kafka for a moment, to write down the classes that it loads: /opt/kafka/kafka.jsa, and storage.jsa for the tool that
# formats disks. Java finds them there in the form in which it needs them, and only if the jars are the same.
place=/tmp/classes
mkdir "$place"
cd "$place"

# Nodes of Karst speak TLS to each other, and so must this one.
keytool -genkeypair -alias node -dname CN=localhost -ext san=dns:localhost -keyalg EC -validity 2 \
    -keystore node.p12 -storetype PKCS12 -storepass archive

cat >server.properties <<END
node.id=0
process.roles=broker,controller
controller.quorum.bootstrap.servers=localhost:9090
listeners=REPLICATION://localhost:9091,CONTROL://localhost:9090
listener.security.protocol.map=REPLICATION:SSL,CONTROL:SSL
controller.listener.names=CONTROL
inter.broker.listener.name=REPLICATION
ssl.keystore.location=$place/node.p12
ssl.keystore.password=archive
ssl.truststore.location=$place/node.p12
ssl.truststore.password=archive
ssl.client.auth=required
log.dirs=$place/data
END

cat >log4j.properties <<END
log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%m%n
END

cat >log4j2.properties <<END
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %m%n
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
END

# The archive is for this very list, in this order: the launcher has the same.
LC_ALL=C
jars=(/opt/kafka/libs/*.jar)
CLASSPATH=$(IFS=:; echo "${jars[*]}")
export CLASSPATH
logging=(-Dlog4j.configuration=file:$place/log4j.properties "-Dlog4j2.configurationFile=$place/log4j2.properties")

java -XX:ArchiveClassesAtExit=/opt/kafka/storage.jsa "${logging[@]}" \
    kafka.tools.StorageTool format --standalone --cluster-id kqDBXFEPQxqvHyMaTnFQzw --config server.properties

java -XX:ArchiveClassesAtExit=/opt/kafka/kafka.jsa "${logging[@]}" kafka.Kafka server.properties >log 2>&1 &
kafka=$!
until grep --quiet 'Kafka Server started' log; do
    kill -0 "$kafka" || { tail log; exit 1; }
    sleep 0.2
done
kill "$kafka"
wait "$kafka" || true
test -e /opt/kafka/kafka.jsa
