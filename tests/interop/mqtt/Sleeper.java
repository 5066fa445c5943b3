import java.nio.charset.StandardCharsets;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/**
 * What a device with Eclipse Paho for Java does: subscribe with a session that is kept, go, come back, and print what it
 * has missed. Arguments: address, version (3 or 5), client id, filter, QoS, how many messages are awaited.
 *
 * It prints "subscribed" once its filter stands, then one line for each message: topic, QoS, value.
 */
public class Sleeper {
    private static final LinkedBlockingQueue<String> MESSAGES = new LinkedBlockingQueue<>();

    public static void main(String[] arguments) throws Exception {
        java.util.logging.LogManager.getLogManager().reset();          // Paho tells of each PUBCOMP
        int count = Integer.parseInt(arguments[5]);
        if (arguments[1].equals("5")) {
            five(arguments[0], arguments[2], arguments[3], Integer.parseInt(arguments[4]));
        } else {
            three(arguments[0], arguments[2], arguments[3], Integer.parseInt(arguments[4]));
        }
        System.out.println("subscribed");
        for (int at = 0; at < count; at++) {
            System.out.println(MESSAGES.poll(60, TimeUnit.SECONDS));
        }
        System.out.flush();
        System.exit(0);
    }

    private static String text(byte[] value) {
        return new String(value, StandardCharsets.UTF_8);
    }

    private static void three(String address, String id, String filter, int qos) throws Exception {
        var client = new org.eclipse.paho.client.mqttv3.MqttClient(
                address, id, new org.eclipse.paho.client.mqttv3.persist.MemoryPersistence());
        var options = new org.eclipse.paho.client.mqttv3.MqttConnectOptions();
        options.setCleanSession(false);
        client.setCallback(new org.eclipse.paho.client.mqttv3.MqttCallback() {
            public void connectionLost(Throwable cause) { }
            public void messageArrived(String topic, org.eclipse.paho.client.mqttv3.MqttMessage message) {
                MESSAGES.add(topic + " " + message.getQos() + " " + text(message.getPayload()));
            }
            public void deliveryComplete(org.eclipse.paho.client.mqttv3.IMqttDeliveryToken token) { }
        });
        client.connect(options);
        client.subscribe(filter, qos);
    }

    private static void five(String address, String id, String filter, int qos) throws Exception {
        var client = new org.eclipse.paho.mqttv5.client.MqttClient(
                address, id, new org.eclipse.paho.mqttv5.client.persist.MemoryPersistence());
        var options = new org.eclipse.paho.mqttv5.client.MqttConnectionOptions();
        options.setCleanStart(false);
        options.setSessionExpiryInterval(3600L);
        client.setCallback(new org.eclipse.paho.mqttv5.client.MqttCallback() {
            public void disconnected(org.eclipse.paho.mqttv5.client.MqttDisconnectResponse response) { }
            public void mqttErrorOccurred(org.eclipse.paho.mqttv5.common.MqttException error) { }
            public void messageArrived(String topic, org.eclipse.paho.mqttv5.common.MqttMessage message) {
                MESSAGES.add(topic + " " + message.getQos() + " " + text(message.getPayload()));
            }
            public void deliveryComplete(org.eclipse.paho.mqttv5.client.IMqttToken token) { }
            public void connectComplete(boolean again, String server) { }
            public void authPacketArrived(int code, org.eclipse.paho.mqttv5.common.packet.MqttProperties properties) { }
        });
        client.connect(options);
        client.subscribe(filter, qos);
    }
}
