import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.admin.UserScramCredentialDeletion;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.BrokerIdNotRegisteredException;
import org.apache.kafka.common.errors.ElectionNotNeededException;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.InvalidReplicaAssignmentException;
import org.apache.kafka.common.errors.InvalidUpdateVersionException;
import org.apache.kafka.common.errors.LogDirNotFoundException;
import org.apache.kafka.common.errors.OffsetOutOfRangeException;
import org.apache.kafka.common.errors.PolicyViolationException;
import org.apache.kafka.common.errors.SecurityDisabledException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * What Kafka's own admin client asks of a broker, one method each, run one after another in one JVM.
 * Prints a line per method, "name TAB ok" or "name TAB what went wrong". Argument: the bootstrap address.
 */
public class AdminChecks {
    private static String bootstrap;
    private static Admin admin;

    private final String topic = "java-admin-" + UUID.randomUUID();
    private final TopicPartition partition = new TopicPartition(topic, 0);
    private final ConfigResource ofTopic = new ConfigResource(ConfigResource.Type.TOPIC, topic);

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        try (Admin opened = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin = opened;
            for (Method check : AdminChecks.class.getDeclaredMethods()) {
                if (!check.isAnnotationPresent(Check.class)) continue;
                String outcome = "ok";
                try {
                    check.invoke(new AdminChecks());
                } catch (InvocationTargetException thrown) {
                    outcome = String.valueOf(thrown.getCause()).replace('\n', ' ');
                }
                System.out.println(check.getName() + "\t" + outcome);
            }
        }
    }

    @java.lang.annotation.Retention(java.lang.annotation.RetentionPolicy.RUNTIME)
    @interface Check {}

    @Check
    public void aTopicsSettingsAreAlteredOneByOne() throws Exception {
        create();
        alter(ofTopic, op("retention.ms", "1234567", AlterConfigOp.OpType.SET),
            op("cleanup.policy", "compact", AlterConfigOp.OpType.APPEND));
        alter(ofTopic, op("cleanup.policy", "delete", AlterConfigOp.OpType.SUBTRACT));

        Config config = described(ofTopic);
        equal("settings", 37, config.entries().size());
        equal("retention.ms", "1234567", config.get("retention.ms").value());
        equal("source", ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, config.get("retention.ms").source());
        equal("type", ConfigEntry.ConfigType.LONG, config.get("retention.ms").type());
        equal("cleanup.policy", "compact", config.get("cleanup.policy").value());
        equal("documented", true, config.get("retention.ms").documentation().contains("milliseconds"));
        List<String> synonyms = config.get("cleanup.policy").synonyms().stream().map(s -> s.name()).toList();
        equal("synonyms", List.of("cleanup.policy", "log.cleanup.policy"), synonyms);
    }

    @Check
    public void aSettingThatCannotBeIsRefused() throws Exception {
        create();
        refused(InvalidConfigurationException.class,
            () -> alter(ofTopic, op("retention.ms", "soon", AlterConfigOp.OpType.SET)));
        refused(InvalidConfigurationException.class,
            () -> alter(ofTopic, op("no.such.setting", "1", AlterConfigOp.OpType.SET)));
        ConfigResource nowhere = new ConfigResource(ConfigResource.Type.TOPIC, "nowhere");
        refused(UnknownTopicOrPartitionException.class,
            () -> alter(nowhere, op("retention.ms", "1", AlterConfigOp.OpType.SET)));
    }

    @Check
    public void everyResourceIsListed() throws Exception {
        create();
        ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, topic);
        alter(group, op("consumer.session.timeout.ms", "50000", AlterConfigOp.OpType.SET));

        Collection<ConfigResource> every = admin.listConfigResources().all().get();
        equal("the topic and the group", true, every.containsAll(List.of(ofTopic, group)));
        equal("value", "50000", described(group).get("consumer.session.timeout.ms").value());
        equal("source", ConfigEntry.ConfigSource.DYNAMIC_GROUP_CONFIG,
            described(group).get("consumer.session.timeout.ms").source());
    }

    @Check
    public void recordsAreDeleted() throws Exception {
        create();
        send(10);
        equal("low watermark", 4L, deleted(4));
        equal("not back", 4L, deleted(1));
        refused(OffsetOutOfRangeException.class, () -> deleted(11));
        equal("all", 10L, deleted(-1));
        alter(ofTopic, op("cleanup.policy", "compact", AlterConfigOp.OpType.SET));
        refused(PolicyViolationException.class, () -> deleted(-1));
    }

    @Check
    public void logDirectoriesAreDescribed() throws Exception {
        create();
        send(10);
        int broker = broker();
        var directories = admin.describeLogDirs(List.of(broker)).allDescriptions().get().get(broker);
        equal("directories", 1, directories.size());
        var directory = directories.values().iterator().next();
        equal("size known", true, directory.replicaInfos().get(partition).size() > 0);
        equal("room known", true, directory.usableBytes().isPresent());
        equal("cordoned", false, directory.isCordoned());

        TopicPartitionReplica replica = new TopicPartitionReplica(topic, 0, broker);
        String path = directories.keySet().iterator().next();
        admin.alterReplicaLogDirs(Map.of(replica, path)).all().get();
        refused(LogDirNotFoundException.class,
            () -> admin.alterReplicaLogDirs(Map.of(replica, "/no/such/folder")).all().get());
        equal("where it is", path,
            admin.describeReplicaLogDirs(List.of(replica)).all().get().get(replica).getCurrentReplicaLogDir());
    }

    @Check
    public void producersAreDescribed() throws Exception {
        create();
        send(3);
        var states = admin.describeProducers(List.of(partition)).partitionResult(partition).get().activeProducers();
        equal("producers", 1, states.size());
        equal("last sequence", 2, states.get(0).lastSequence());
        equal("no transaction", true, states.get(0).currentTransactionStartOffset().isEmpty());
    }

    @Check
    public void theQuorumIsDescribed() throws Exception {
        var quorum = admin.describeMetadataQuorum().quorumInfo().get();
        equal("leader", broker(), quorum.leaderId());
        equal("voters", 1, quorum.voters().size());
        equal("observers", 0, quorum.observers().size());
        equal("nodes", Set.of(broker()), quorum.nodes().keySet());
    }

    @Check
    public void anElectionIsNotNeeded() throws Exception {
        create();
        Optional<Throwable> outcome =
            admin.electLeaders(ElectionType.PREFERRED, Set.of(partition)).partitions().get().get(partition);
        equal("outcome", ElectionNotNeededException.class, outcome.get().getClass());
        equal("of all", false,
            admin.electLeaders(ElectionType.UNCLEAN, null).partitions().get().containsKey(partition));
    }

    @Check
    public void aReassignmentToWhereItIsSucceeds() throws Exception {
        create();
        reassign(List.of(broker()));
        refused(InvalidReplicaAssignmentException.class, () -> reassign(List.of(broker(), 77)));
        equal("under way", Map.of(), admin.listPartitionReassignments().reassignments().get());
    }

    @Check
    public void featuresAreDescribedAndChecked() throws Exception {
        var features = admin.describeFeatures().featureMetadata().get();
        equal("metadata.version", (short) 33, features.finalizedFeatures().get("metadata.version").maxVersionLevel());
        equal("supported", (short) 2, features.supportedFeatures().get("transaction.version").maxVersion());
        update("share.version", 0, FeatureUpdate.UpgradeType.SAFE_DOWNGRADE);
        refused(InvalidUpdateVersionException.class,
            () -> update("share.version", 9, FeatureUpdate.UpgradeType.UPGRADE));
        refused(InvalidUpdateVersionException.class,
            () -> update("no.such.feature", 1, FeatureUpdate.UpgradeType.UPGRADE));
    }

    @Check
    public void credentialsAreMadeAndDeleted() throws Exception {
        var info = new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096);
        admin.alterUserScramCredentials(List.of(new UserScramCredentialUpsertion(topic, info, "secret"))).all().get();
        var described = admin.describeUserScramCredentials(List.of(topic)).all().get();
        equal("credentials", List.of(info), described.get(topic).credentialInfos());
        var deletion = new UserScramCredentialDeletion(topic, ScramMechanism.SCRAM_SHA_256);
        admin.alterUserScramCredentials(List.of(deletion)).all().get();
        equal("left", false, admin.describeUserScramCredentials().users().get().contains(topic));
    }

    @Check
    public void whatIsNotConfiguredSaysSo() throws Exception {
        refused(SecurityDisabledException.class, () -> admin.describeAcls(AclBindingFilter.ANY).values().get());
        refused(BrokerIdNotRegisteredException.class, () -> admin.unregisterBroker(77).all().get());
    }

    // --- steps that the checks share

    private interface Step {
        void run() throws Exception;
    }

    private void create() throws Exception {
        admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get();
    }

    private void send(int count) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap);
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int i = 0; i < count; i++) producer.send(new ProducerRecord<>(topic, 0, "k", "v" + i)).get();
        }
    }

    private static AlterConfigOp op(String name, String value, AlterConfigOp.OpType type) {
        return new AlterConfigOp(new ConfigEntry(name, value), type);
    }

    private static void alter(ConfigResource resource, AlterConfigOp... ops) throws Exception {
        admin.incrementalAlterConfigs(Map.of(resource, List.of(ops))).all().get();
    }

    private static Config described(ConfigResource resource) throws Exception {
        var options = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
        return admin.describeConfigs(List.of(resource), options).all().get().get(resource);
    }

    private long deleted(long before) throws Exception {
        RecordsToDelete wanted = RecordsToDelete.beforeOffset(before);
        KafkaFuture<Long> low = admin.deleteRecords(Map.of(partition, wanted))
            .lowWatermarks().get(partition).thenApply(records -> records.lowWatermark());
        return low.get();
    }

    private void reassign(List<Integer> replicas) throws Exception {
        var wanted = Optional.of(new NewPartitionReassignment(replicas));
        admin.alterPartitionReassignments(Map.of(partition, wanted)).all().get();
    }

    private static void update(String feature, int level, FeatureUpdate.UpgradeType type) throws Exception {
        var wanted = Map.of(feature, new FeatureUpdate((short) level, type));
        admin.updateFeatures(wanted, new UpdateFeaturesOptions().validateOnly(true)).all().get();
    }

    private static int broker() throws Exception {
        return admin.describeCluster().nodes().get().stream().map(node -> node.id())
            .collect(Collectors.toList()).get(0);
    }

    private static void refused(Class<? extends Exception> wanted, Step step) throws Exception {
        try {
            step.run();
        } catch (ExecutionException thrown) {
            equal("refusal", wanted, thrown.getCause().getClass());
            return;
        }
        throw new AssertionError("not refused with " + wanted.getSimpleName());
    }

    private static void equal(String what, Object expected, Object got) {
        if (!Objects.equals(expected, got)) {
            throw new AssertionError(what + ": expected " + expected + ", got " + got);
        }
    }
}
