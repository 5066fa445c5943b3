// Transactions with KafkaJS: node kafkajs_transactions.js BROKER TOPIC GROUP, with KafkaJS where NODE_PATH says.
// It ends with 0 where everything was as expected; what was not stands on standard error.
const assert = require("node:assert");
const { Kafka, logLevel } = require("kafkajs");

const [broker, topic, group] = process.argv.slice(2);
const kafka = new Kafka({ clientId: "transactions", brokers: [broker], logLevel: logLevel.NOTHING });

async function run() {
  const admin = kafka.admin();
  const producer = kafka.producer({ transactionalId: topic, maxInFlightRequests: 1, idempotent: true });
  await Promise.all([admin.connect(), producer.connect()]);
  await admin.createTopics({ topics: [{ topic, numPartitions: 1 }] });
  const end = async () => (await admin.fetchTopicOffsets(topic))[0].offset;
  const offset = async () => (await admin.fetchOffsets({ groupId: group, topics: [topic] }))[0].partitions[0].offset;
  const offsets = { consumerGroupId: group, topics: [{ topic, partitions: [{ partition: 0, offset: "2" }] }] };

  const member = kafka.consumer({ groupId: group });
  const joined = new Promise((resolve) => member.on(member.events.GROUP_JOIN, resolve));
  await member.connect();
  await member.subscribe({ topic });
  await member.run({ autoCommit: false, eachMessage: async () => {} });
  await joined;

  let transaction = await producer.transaction();
  await transaction.send({ topic, messages: [{ value: "a" }, { value: "b" }] });
  await transaction.sendOffsets(offsets);
  await transaction.abort();
  assert.deepEqual([await end(), await offset()], ["0", "-1"]);

  transaction = await producer.transaction();
  await transaction.send({ topic, messages: [{ value: "c" }, { value: "d" }] });
  await transaction.sendOffsets(offsets);
  assert.deepEqual([await end(), await offset()], ["0", "-1"]);
  await transaction.commit();
  assert.deepEqual([await end(), await offset()], ["2", "2"]);
  await Promise.all([member.disconnect(), admin.disconnect(), producer.disconnect()]);
}

run().catch((error) => { console.error(error); process.exit(1); });
