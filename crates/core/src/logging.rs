//! What Kafka logs, and where: to the container's output, one line an event.

use crate::versions::Logging;

/// The key of the ConfigMap and the text of the logging configuration.
pub(crate) fn render(logging: Logging) -> (&'static str, &'static str) {
    match logging {
        Logging::Log4j1 => ("log4j.properties", LOG4J1),
        Logging::Log4j2 => ("log4j2.properties", LOG4J2),
    }
}

const LOG4J1: &str = "\
log4j.rootLogger=INFO, CONSOLE
log4j.appender.CONSOLE=org.apache.log4j.ConsoleAppender
log4j.appender.CONSOLE.layout=org.apache.log4j.PatternLayout
log4j.appender.CONSOLE.layout.ConversionPattern=%d{ISO8601} %p %m (%c) [%t]%n
log4j.logger.org.apache.kafka=INFO
log4j.logger.kafka.request.logger=WARN
log4j.logger.kafka.network.Processor=WARN
log4j.logger.kafka.server.KafkaApis=WARN
log4j.logger.kafka.log.LogCleaner=INFO
log4j.logger.state.change.logger=INFO
log4j.logger.kafka.authorizer.logger=INFO
";

const LOG4J2: &str = "\
name = Karst
monitorInterval = 30
appender.console.type = Console
appender.console.name = CONSOLE
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %p %m (%c) [%t]%n
rootLogger.level = INFO
rootLogger.appenderRefs = console
rootLogger.appenderRef.console.ref = CONSOLE
logger.request.name = kafka.request.logger
logger.request.level = WARN
logger.network.name = kafka.network.Processor
logger.network.level = WARN
logger.statechange.name = state.change.logger
logger.statechange.level = INFO
logger.authorizer.name = kafka.authorizer.logger
logger.authorizer.level = INFO
";
