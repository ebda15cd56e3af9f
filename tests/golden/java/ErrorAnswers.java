import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.protocol.Readable;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;

/**
 * What a request is answered that fails as a whole. Lines in, fields between tabs: api key, version, error code, the request's
 * body in hex. Out comes the answer's body in hex; `null` where there is none; `!` and why where Kafka makes none.
 */
public class ErrorAnswers {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] f = line.split("\t", -1);
            ApiKeys api = ApiKeys.forId(Short.parseShort(f[0]));
            short version = Short.parseShort(f[1]);
            Errors error = Errors.forCode(Short.parseShort(f[2]));
            try {
                Readable body = new ByteBufferAccessor(ByteBuffer.wrap(HexFormat.of().parseHex(f[3])));
                AbstractRequest request = AbstractRequest.parseRequest(api, version, body).request;
                AbstractResponse response = request.getErrorResponse(0, error.exception());
                if (response == null) {
                    System.out.println("null");
                    continue;
                }
                ByteBuffer bytes = MessageUtil.toByteBufferAccessor(response.data(), version).buffer();
                byte[] out = new byte[bytes.remaining()];
                bytes.get(out);
                System.out.println(HexFormat.of().formatHex(out));
            } catch (Throwable problem) {
                System.out.println("!" + problem);
            }
        }
    }
}
