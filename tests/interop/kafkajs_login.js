// Whether KafkaJS gets in: node kafkajs_login.js BROKER OPTIONS, with KafkaJS where NODE_PATH says. OPTIONS are JSON: `ssl`
// names files, `sasl` is KafkaJS's own. It prints the topics that it sees, or ends with 1 and says why on standard error.
const fs = require("node:fs");
const { Kafka, logLevel } = require("kafkajs");

const [broker, options] = process.argv.slice(2);
const { ssl: files, sasl } = JSON.parse(options);
const ssl = Object.fromEntries(Object.entries(files).map(([name, file]) => [name, fs.readFileSync(file)]));
const kafka = new Kafka({ clientId: "login", brokers: [broker], ssl, sasl, retry: { retries: 0 }, logLevel: logLevel.NOTHING });
const admin = kafka.admin();

admin.connect().then(() => admin.listTopics()).then((topics) => {
  console.log(topics.join("\n"));
  return admin.disconnect();
}).catch((error) => {
  console.error(`${error.name}: ${error.message}`);
  process.exit(1);
});
