package org.barnabas;

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;

/** Asks a barnabas broker for faults, time and what it holds. */
final class Barnabas {
    static final String BOOTSTRAP = System.getenv("BARNABAS_BOOTSTRAP");

    private static final String URL = System.getenv("BARNABAS_URL");
    private static final String TOKEN = System.getenv().getOrDefault("BARNABAS_TOKEN", "");
    private static final HttpClient HTTP = HttpClient.newHttpClient();

    private Barnabas() {}

    /** The answer, as JSON: {"answer": ...}. */
    static String ask(String path, String body) throws IOException, InterruptedException {
        HttpRequest request = HttpRequest.newBuilder(URI.create(URL + "/" + path))
                .header("Authorization", "Bearer " + TOKEN)
                .POST(HttpRequest.BodyPublishers.ofString(body))
                .build();
        HttpResponse<String> response = HTTP.send(request, HttpResponse.BodyHandlers.ofString());
        if (response.statusCode() != 200) {
            throw new IOException(response.body());
        }
        return response.body();
    }

    /** A fault, as the documents describe one; what is returned is its number. */
    static int arm(String fault) throws IOException, InterruptedException {
        return Integer.parseInt(ask("arm_fault", "{\"fault\": " + fault + "}").replaceAll("\\D", ""));
    }

    /** Waits until the fault holds somebody, or has fired. */
    static void until(int fault, String what) throws IOException, InterruptedException {
        while (ask("fault", "{\"number\": " + fault + "}").contains("\"" + what + "\": 0")) {
            Thread.sleep(5);
        }
    }

    /** What it holds goes on. */
    static String disarm(int fault) throws IOException, InterruptedException {
        return ask("disarm_fault", "{\"number\": " + fault + "}");
    }
}
