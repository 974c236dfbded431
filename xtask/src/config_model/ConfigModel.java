import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.server.config.AbstractKafkaConfig;

/**
 * Prints what Kafka's own jars say about the settings of brokers and controllers, one a line, by name:
 * name, type, what values may be, and how the setting can change while a node runs, separated by tabs.
 *
 * It is run as a source file with the jars of one version on the class path. Validators keep their bounds to themselves, so
 * they are read from their fields, under the names that these have had from 3.9 to 4.3.
 */
class ConfigModel {
    public static void main(String[] arguments) throws Exception {
        Map<String, String> modes = updateModes();
        for (ConfigDef.ConfigKey key : new TreeMap<>(AbstractKafkaConfig.CONFIG_DEF.configKeys()).values()) {
            String mode = modes.getOrDefault(key.name, "read-only");
            System.out.println(String.join("\t", key.name, key.type.name(), constraint(key.validator), mode));
        }
    }

    /** Kafka 4.2 moved the table to another class, and from Scala to Java. */
    private static Map<String, String> updateModes() throws Exception {
        Object found;
        try {
            Class<?> java = Class.forName("org.apache.kafka.server.config.DynamicBrokerConfig");
            found = java.getMethod("dynamicConfigUpdateModes").invoke(null);
        } catch (ClassNotFoundException | NoSuchMethodException older) {
            Class<?> scala = Class.forName("kafka.server.DynamicBrokerConfig$");
            Object module = scala.getField("MODULE$").get(null);
            found = scala.getMethod("dynamicConfigUpdateModes").invoke(module);
        }
        Map<String, String> modes = new TreeMap<>();
        for (Map.Entry<?, ?> entry : ((Map<?, ?>) found).entrySet()) {
            modes.put(entry.getKey().toString(), entry.getValue().toString());
        }
        return modes;
    }

    private static String constraint(ConfigDef.Validator validator) throws Exception {
        if (validator == null) {
            return "";
        }
        switch (validator.getClass().getSimpleName()) {
            case "Range":
                return "range " + bound(field(validator, "min")) + ".." + bound(field(validator, "max"));
            case "ValidString":
                return "one of " + list(field(validator, "validStrings"));
            case "CaseInsensitiveValidString":
                return "one of (any case) " + list(field(validator, "validStrings"));
            case "ValidList":
                String words = list(field(field(validator, "validString"), "validStrings"));
                return words.isEmpty() ? "" : "list of " + words;
            case "NonEmptyString":
            case "NonEmptyStringWithoutControlChars":
                return "not empty";
            case "CompositeValidator":
                List<String> all = new ArrayList<>();
                for (Object part : (List<?>) field(validator, "validators")) {
                    all.add(constraint((ConfigDef.Validator) part));
                }
                all.removeIf(String::isEmpty);
                return all.size() == 1 ? all.get(0) : "";
            default:
                System.err.println("not understood, and left to Kafka: " + validator.getClass().getName() + " " + validator);
                return "";
        }
    }

    private static Object field(Object owner, String name) throws Exception {
        Field field = owner.getClass().getDeclaredField(name);
        field.setAccessible(true);
        return field.get(owner);
    }

    private static String bound(Object number) {
        return number == null ? "" : number.toString();
    }

    private static String list(Object strings) {
        List<String> words = new ArrayList<>();
        for (Object word : (Collection<?>) strings) {
            words.add(word.toString());
        }
        words.sort(null);
        return String.join(",", words);
    }
}
