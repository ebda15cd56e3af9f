package org.barnabas;

import com.github.dockerjava.api.command.InspectContainerResponse;
import org.testcontainers.containers.GenericContainer;
import org.testcontainers.containers.wait.strategy.Wait;
import org.testcontainers.images.builder.Transferable;
import org.testcontainers.utility.DockerImageName;

/**
 * barnabas as a container of Testcontainers: copy this file into your tests. It needs the image alone.
 *
 * <pre>{@code
 * try (var kafka = new BarnabasContainer(DockerImageName.parse("barnabas"))) {
 *     kafka.start();
 *     properties.put("bootstrap.servers", kafka.getBootstrapServers());
 * }
 * }</pre>
 *
 * Containers of its network reach it at {@code ALIAS:29092}, the first of its network aliases.
 */
public class BarnabasContainer extends GenericContainer<BarnabasContainer> {
    private static final int PORT = 9092;
    private static final int NETWORK_PORT = 29092;
    private static final String ADVERTISED = "/tmp/advertised";

    public BarnabasContainer(DockerImageName image) {
        super(image);
        withExposedPorts(PORT);
        // Which port of the machine leads to the container is known once it runs. So it waits for that.
        withCreateContainerCmdModifier(command -> command.withEntrypoint(
            "sh", "-c",
            "until [ -s " + ADVERTISED + " ]; do sleep 0.02; done; "
                + "KAFKA_ADVERTISED_LISTENERS=\"$(cat " + ADVERTISED + ")\" exec /entrypoint.sh"));
        withEnv("KAFKA_LISTENERS", "OUTSIDE://0.0.0.0:" + PORT + ",INSIDE://0.0.0.0:" + NETWORK_PORT);
        withEnv("KAFKA_LISTENER_SECURITY_PROTOCOL_MAP", "OUTSIDE:PLAINTEXT,INSIDE:PLAINTEXT");
        withEnv("KAFKA_INTER_BROKER_LISTENER_NAME", "INSIDE");
        waitingFor(Wait.forLogMessage(".*\\[KafkaServer id=\\d+\\] started.*", 1));
    }

    public String getBootstrapServers() {
        return getHost() + ":" + getMappedPort(PORT);
    }

    @Override
    protected void containerIsStarting(InspectContainerResponse started) {
        String inside = getNetworkAliases().get(0) + ":" + NETWORK_PORT;
        String advertised = "OUTSIDE://" + getBootstrapServers() + ",INSIDE://" + inside;
        copyFileToContainer(Transferable.of(advertised), ADVERTISED);
    }
}
