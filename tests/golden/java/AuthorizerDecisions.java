import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

/**
 * What Kafka's StandardAuthorizer decides. Lines in, fields between tabs: `new`, super users, whether everybody may where
 * there is no ACL; `acl` and its seven fields; `ask`, principal, host, operation, resource type, name: the line of the
 * log of decisions comes out; `any`, the same without a name: ALLOWED or DENIED comes out.
 */
public class AuthorizerDecisions {
    record Asker(KafkaPrincipal principal, InetAddress clientAddress) implements AuthorizableRequestContext {
        public String listenerName() { return "PLAINTEXT"; }
        public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
        public int requestType() { return 3; }
        public int requestVersion() { return 12; }
        public String clientId() { return ""; }
        public int correlationId() { return 0; }
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        StandardAuthorizer authorizer = null;
        Map<Uuid, StandardAcl> acls = new HashMap<>();
        boolean loaded = false;
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] f = line.split("\t", -1);
            if (f[0].equals("new")) {
                authorizer = new StandardAuthorizer();
                authorizer.configure(Map.of("super.users", f[1], "allow.everyone.if.no.acl.found", f[2], "node.id", "1"));
                authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
                acls.clear();
                loaded = false;
                continue;
            }
            if (f[0].equals("acl")) {
                acls.put(Uuid.randomUuid(), new StandardAcl(
                    ResourceType.fromCode(Byte.parseByte(f[1])), f[2], PatternType.fromCode(Byte.parseByte(f[3])), f[4], f[5],
                    AclOperation.fromCode(Byte.parseByte(f[6])), AclPermissionType.fromCode(Byte.parseByte(f[7]))));
                continue;
            }
            if (!loaded) {
                authorizer.loadSnapshot(acls);
                authorizer.completeInitialLoad();
                loaded = true;
            }
            String[] who = f[1].split(":", 2);
            Asker asker = new Asker(new KafkaPrincipal(who[0], who[1]), InetAddress.getByName(f[2]));
            AclOperation operation = AclOperation.fromCode(Byte.parseByte(f[3]));
            ResourceType type = ResourceType.fromCode(Byte.parseByte(f[4]));
            if (f[0].equals("any")) {
                System.out.println(authorizer.authorizeByResourceType(asker, operation, type));
                continue;
            }
            Action action = new Action(operation, new ResourcePattern(type, f[5], PatternType.LITERAL), 1, true, true);
            System.out.println(told(authorizer, asker, action));
        }
    }

    static String told(StandardAuthorizer authorizer, Asker asker, Action action) throws Exception {
        Field field = StandardAuthorizer.class.getDeclaredField("data");
        field.setAccessible(true);
        Object data = field.get(authorizer);
        Method build = null;
        Method find = null;
        Object superUser = null;
        for (Method method : data.getClass().getDeclaredMethods()) {
            method.setAccessible(true);
            if (method.getName().equals("buildAuditMessage")) build = method;
            if (method.getName().equals("findAclRule")) find = method;
        }
        for (Class<?> inner : data.getClass().getDeclaredClasses()) {
            if (inner.getSimpleName().equals("SuperUserRule")) {
                Field instance = inner.getDeclaredField("INSTANCE");
                instance.setAccessible(true);
                superUser = instance.get(null);
            }
        }
        Field users = data.getClass().getDeclaredField("superUsers");
        users.setAccessible(true);
        boolean isSuper = ((Set<?>) users.get(data)).contains(asker.principal().toString());
        Object rule = isSuper ? superUser : find.invoke(
            data, Set.of(asker.principal(), new KafkaPrincipal("User", "*")), asker.clientAddress().getHostAddress(), action);
        boolean allowed = authorizer.authorize(asker, List.of(action)).get(0) == AuthorizationResult.ALLOWED;
        String text = (String) build.invoke(data, asker.principal(), asker, action, rule);
        if (text.contains(" is Allowed ") != allowed) throw new IllegalStateException(text);
        return text;
    }
}
