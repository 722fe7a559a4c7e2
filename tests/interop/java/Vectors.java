// Prints, for every wave 1 message and version, what Kafka's own Java classes put on the wire: one JSON object a line with
// name, version, filling, the value as Kafka's JSON converter shows it, and the bytes in hexadecimal.
//
// The values are made from the message's schema of that version, so no message is named here but by its key.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.TreeMap;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.Field;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.Struct;
import org.apache.kafka.common.protocol.types.TaggedFields;
import org.apache.kafka.common.protocol.types.Type;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.SimpleRecord;

public final class Vectors {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int[] FILLINGS = {0, 1, 2};

    /** Which values: 0 the least that is valid (null, empty, zero), 1 and 2 full ones that differ. */
    private final int filling;
    private long counter;

    private Vectors(int filling) {
        this.filling = filling;
        this.counter = filling * 1000L;
    }

    public static void main(String[] keys) throws Exception {
        for (String key : keys) {
            ApiMessageType api = ApiMessageType.fromApiKey(Short.parseShort(key));
            print(api.newRequest(), api.requestSchemas());
            print(api.newResponse(), api.responseSchemas());
        }
    }

    private static void print(ApiMessage prototype, Schema[] schemas) throws Exception {
        for (short version = prototype.lowestSupportedVersion(); version <= prototype.highestSupportedVersion(); version++) {
            for (int filling : FILLINGS) {
                Vectors vectors = new Vectors(filling);
                Schema schema = schemas[version];
                Struct struct = vectors.struct(schema);
                ByteBuffer buffer = ByteBuffer.allocate(schema.sizeOf(struct));
                schema.write(buffer, struct);
                buffer.flip();
                Message message = prototype.getClass().getDeclaredConstructor().newInstance();
                message.read(new ByteBufferAccessor(buffer), version);
                ByteBuffer bytes = MessageUtil.toByteBufferAccessor(message, version).buffer();
                byte[] raw = new byte[bytes.remaining()];
                bytes.get(raw);
                ObjectNode line = JSON.createObjectNode();
                line.put("name", prototype.getClass().getSimpleName().replace("Data", ""));
                line.put("version", version);
                line.put("filling", filling);
                line.set("value", json(message, version));
                line.put("bytes", HexFormat.of().formatHex(raw));
                System.out.println(line);
            }
        }
    }

    private static JsonNode json(Message message, short version) throws Exception {
        Class<?> converter = Class.forName(message.getClass().getName() + "JsonConverter");
        Method write = converter.getMethod("write", message.getClass(), short.class);
        return (JsonNode) write.invoke(null, message, version);
    }

    private Struct struct(Schema schema) {
        Struct struct = new Struct(schema);
        for (BoundField field : schema.fields()) {
            struct.set(field, value(field.def.type));
        }
        return struct;
    }

    private Object value(Type type) {
        long n = ++counter;
        boolean full = filling > 0;
        if (type instanceof Schema schema && (full || !type.isNullable())) {
            return struct(schema);
        }
        if (type instanceof TaggedFields tagged) {
            NavigableMap<Integer, Object> values = new TreeMap<>();
            if (full) {
                for (Map.Entry<Integer, Field> entry : tagged.fields().entrySet()) {
                    values.put(entry.getKey(), value(entry.getValue().type));
                }
            }
            return values;
        }
        if (type.isArray()) {
            if (!full) {
                return type.isNullable() ? null : new Object[0];
            }
            Type element = type.arrayElementType().orElseThrow();
            List<Object> items = new ArrayList<>();
            for (int i = 0; i < filling; i++) {
                items.add(value(element));
            }
            return items.toArray();
        }
        if (type.isNullable() && !full) {
            return null;
        }
        String name = ((Type.DocumentedType) type).typeName();
        if (name.contains("RECORDS")) {
            return full ? MemoryRecords.withRecords(Compression.NONE, new SimpleRecord(n, "value".getBytes())) : MemoryRecords.EMPTY;
        }
        if (name.contains("STRING")) {
            return full ? "text-" + n + (filling == 2 ? "-é€😀" : "") : "";
        }
        if (name.contains("BYTES")) {
            return ByteBuffer.wrap(full ? ("bytes-" + n).getBytes(StandardCharsets.UTF_8) : new byte[0]);
        }
        return switch (name) {
            case "BOOLEAN" -> full && n % 2 == 0;
            case "INT8" -> (byte) (full ? n % 100 * (filling == 2 ? -1 : 1) : 0);
            case "INT16" -> (short) (full ? n * 7 % 30_000 * (filling == 2 ? -1 : 1) : 0);
            case "UINT16" -> (int) (full ? 40_000 + n : 0);
            case "INT32" -> (int) (full ? n * 1_000_003 % Integer.MAX_VALUE * (filling == 2 ? -1 : 1) : 0);
            case "UNSIGNED_INT32" -> full ? 3_000_000_000L + n : 0L;
            case "INT64" -> full ? n * 1_000_000_000_039L * (filling == 2 ? -1 : 1) : 0L;
            case "FLOAT64" -> full ? n / 8.0 : 0.0;
            case "UUID" -> full ? new Uuid(n * 0x9E3779B97F4A7C15L, n) : Uuid.ZERO_UUID;
            default -> throw new IllegalArgumentException("no value for type " + type + " (" + name + ")");
        };
    }
}
