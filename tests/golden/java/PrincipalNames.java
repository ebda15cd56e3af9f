import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/** Lines "name TAB hex of a DER name", "map TAB hex of the rules TAB hex of a name"; the answers in hex. */
public class PrincipalNames {
    public static void main(String[] args) throws Exception {
        HexFormat hex = HexFormat.of();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] parts = line.split("\t", -1);
            String answer;
            try {
                if (parts[0].equals("name")) {
                    answer = new X500Principal(hex.parseHex(parts[1])).getName();
                } else {
                    String rules = new String(hex.parseHex(parts[1]), StandardCharsets.UTF_8);
                    String name = new String(hex.parseHex(parts[2]), StandardCharsets.UTF_8);
                    answer = SslPrincipalMapper.fromRules(rules).getName(name);
                }
                System.out.println("+" + hex.formatHex(answer.getBytes(StandardCharsets.UTF_8)));
            } catch (Exception error) {
                System.out.println("-" + error.getClass().getSimpleName());
            }
        }
    }
}
