// A KafkaJS developer's first hour: node kafkajs_hour.js BROKER TOPIC GROUP, with KafkaJS where NODE_PATH says.
// It ends with 0 where everything was as expected; what was not stands on standard error.
const assert = require("node:assert");
const { Kafka, logLevel } = require("kafkajs");

const [broker, topic, group] = process.argv.slice(2);
const PARTITIONS = 4;
const EACH = 5;
const WAIT_MS = 60_000;

const kafka = new Kafka({ clientId: "hour", brokers: [broker], logLevel: logLevel.NOTHING });

async function until(done, what) {
  const begin = Date.now();
  while (!done()) {
    if (Date.now() - begin > WAIT_MS) throw new Error(`waited too long for ${what}`);
    await new Promise((resolve) => { setTimeout(resolve, 20); });
  }
}

/** A consumer that runs; `got` and `parts` are what it was given. */
async function start(fromBeginning = true) {
  const member = { got: [], parts: [] };
  member.consumer = kafka.consumer({ groupId: group, sessionTimeout: 6000, heartbeatInterval: 200, maxWaitTimeInMs: 200 });
  member.consumer.on(member.consumer.events.GROUP_JOIN, ({ payload }) => { member.parts = payload.memberAssignment[topic] ?? []; });
  await member.consumer.connect();
  await member.consumer.subscribe({ topics: [topic], fromBeginning });
  await member.consumer.run({ eachMessage: async ({ message }) => { member.got.push(message.value.toString()); } });
  return member;
}

async function hour() {
  const admin = kafka.admin();
  const producer = kafka.producer();
  await Promise.all([admin.connect(), producer.connect()]);
  assert(await admin.createTopics({ topics: [{ topic, numPartitions: PARTITIONS }] }));
  for (let partition = 0; partition < PARTITIONS; partition += 1) {
    await producer.send({ topic, messages: [...Array(EACH).keys()].map((i) => ({ partition, value: `${partition}-${i}` })) });
  }

  const first = await start();
  await until(() => first.got.length === PARTITIONS * EACH, "all messages");
  const second = await start();
  await until(() => second.parts.length === PARTITIONS / 2 && first.parts.length === PARTITIONS / 2, "halves");
  const [described] = (await admin.describeGroups([group])).groups;
  assert.deepEqual([described.state, described.members.length], ["Stable", 2]);
  await second.consumer.disconnect();
  await until(() => first.parts.length === PARTITIONS, "everything again");
  await first.consumer.disconnect();

  const [committed] = await admin.fetchOffsets({ groupId: group, topics: [topic] });
  assert.deepEqual(committed.partitions.map((row) => row.offset), Array(PARTITIONS).fill(String(EACH)));
  await admin.resetOffsets({ groupId: group, topic, earliest: true });
  await admin.setOffsets({ groupId: group, topic, partitions: [{ partition: 0, offset: "3" }] });
  const again = await start(false);
  await until(() => again.got.length === PARTITIONS * EACH - 3, "what the offsets were set back to");
  await again.consumer.disconnect();
  assert.deepEqual((await admin.deleteGroups([group])).map((row) => row.errorCode), [0]);

  const resource = { type: 2, name: topic };
  await admin.alterConfigs({ validateOnly: false,
    resources: [{ ...resource, configEntries: [{ name: "retention.ms", value: "3600000" }] }] });
  const { resources: [{ configEntries: [entry] }] } = await admin.describeConfigs({ includeSynonyms: false,
    resources: [{ ...resource, configNames: ["retention.ms"] }] });
  assert.equal(entry.configValue, "3600000");
  await admin.createPartitions({ topicPartitions: [{ topic, count: PARTITIONS + 2 }] });
  const { topics: [metadata] } = await admin.fetchTopicMetadata({ topics: [topic] });
  assert.equal(metadata.partitions.length, PARTITIONS + 2);
  await admin.deleteTopics({ topics: [topic] });
  assert(!(await admin.listTopics()).includes(topic));
  await Promise.all([admin.disconnect(), producer.disconnect()]);
}

hour().catch((error) => { console.error(error); process.exit(1); });
