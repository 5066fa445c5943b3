// A Node developer's first hour with amqplib: node amqplib_hour.js PORT, with amqplib where NODE_PATH says.
// It ends with 0 where everything was as expected; what was not stands on standard error.
const assert = require("node:assert");
const amqp = require("amqplib");

const port = Number(process.argv[2]);
const WAIT_MS = 60_000;

async function until(done, what) {
  const begin = Date.now();
  while (!done()) {
    if (Date.now() - begin > WAIT_MS) throw new Error(`waited too long for ${what}`);
    await new Promise((resolve) => { setTimeout(resolve, 10); });
  }
}

async function topologyAndConfirms(connection) {
  const channel = await connection.createConfirmChannel();
  await channel.assertExchange("node.logs", "topic", { durable: true, alternateExchange: "node.lost" });
  await channel.assertExchange("node.lost", "fanout");
  await channel.assertExchange("node.second", "headers");
  const { queue } = await channel.assertQueue("", { exclusive: true, messageTtl: 60_000, expires: 120_000, maxLength: 1000 });
  assert(queue.startsWith("amq.gen"));
  await channel.assertQueue("node.work", { deadLetterExchange: "", deadLetterRoutingKey: "node.dead", maxPriority: 5 });
  await channel.assertQueue("node.dead");
  await channel.bindQueue(queue, "node.logs", "*.error");
  await channel.bindQueue("node.dead", "node.lost", "");
  await channel.bindExchange("node.second", "node.logs", "audit.#");
  await channel.bindQueue("node.work", "node.second", "", { "x-match": "any", colour: "red", size: 5 });

  const returned = [];
  channel.on("return", (message) => { returned.push(message.fields.replyText); });
  for (let i = 0; i < 500; i += 1) channel.publish("node.logs", "app.error", Buffer.from(`error ${i}`), { persistent: true });
  channel.publish("node.logs", "audit.login", Buffer.from("audited"), { headers: { colour: "red" }, priority: 3, messageId: "7" });
  channel.publish("node.logs", "nobody", Buffer.from("to the alternate"));
  channel.publish("amq.direct", "nobody", Buffer.from("returned"), { mandatory: true });
  await channel.waitForConfirms();
  await until(() => returned.length === 1, "a return");
  assert.deepStrictEqual(returned, ["NO_ROUTE"]);

  const got = [];
  await channel.prefetch(10);
  const { consumerTag } = await channel.consume(queue, (message) => {
    got.push(message.content.toString());
    channel.ack(message);
  });
  await until(() => got.length === 500, "all errors");
  assert.strictEqual(got[499], "error 499");
  await channel.cancel(consumerTag);
  const audited = await channel.get("node.work");
  assert.deepStrictEqual([audited.content.toString(), audited.properties.headers.colour, audited.properties.priority],
                         ["audited", "red", 3]);
  channel.nack(audited, false, false);
  const dead = await channel.get("node.dead", { noAck: true });
  assert.strictEqual(dead.content.toString(), "to the alternate");
  await until(() => true, "nothing");
  let buried = false;
  for (let tries = 0; !buried && tries < 1000; tries += 1) buried = await channel.get("node.dead", { noAck: true });
  assert.strictEqual(buried.properties.headers["x-death"][0].reason, "rejected");
  assert.deepStrictEqual(await channel.purgeQueue(queue), { messageCount: 0 });
  await channel.recover();
  await channel.close();
}

async function answers(connection) {
  const server = await connection.createChannel();
  const { queue } = await server.assertQueue("node.rpc");
  await server.consume(queue, (question) => {
    server.sendToQueue(question.properties.replyTo, Buffer.from(`${question.content} squared`),
                       { correlationId: question.properties.correlationId });
    server.ack(question);
  });
  const client = await connection.createChannel();
  const told = {};
  await client.consume("amq.rabbitmq.reply-to", (answer) => {
    told[answer.properties.correlationId] = answer.content.toString();
  }, { noAck: true });
  for (let i = 0; i < 50; i += 1) {
    client.sendToQueue(queue, Buffer.from(String(i)), { replyTo: "amq.rabbitmq.reply-to", correlationId: String(i) });
  }
  await until(() => Object.keys(told).length === 50, "all answers");
  assert.strictEqual(told[49], "49 squared");
}

async function refusals(connection) {
  for (const [ask, code] of [
    [(channel) => channel.checkQueue("node.missing"), 404],
    [(channel) => channel.assertQueue("node.work", { durable: false }), 406],
    [(channel) => channel.assertExchange("node.logs", "fanout"), 406],
    [(channel) => channel.assertQueue("amq.mine"), 403],
  ]) {
    const channel = await connection.createChannel();
    let told = null;
    channel.on("error", (error) => { told = error; });
    await assert.rejects(ask(channel));
    await until(() => told !== null, "a refusal");
    assert.strictEqual(told.code, code);
  }
}

async function largeAndMany(connection) {
  const channel = await connection.createConfirmChannel();
  await channel.assertQueue("node.large");
  const large = Buffer.alloc(10 << 20, 7);
  channel.sendToQueue("node.large", large);
  for (let i = 0; i < 20_000; i += 1) {
    if (!channel.sendToQueue("node.large", Buffer.from(String(i)))) {
      await new Promise((resolve) => { channel.once("drain", resolve); });
    }
  }
  await channel.waitForConfirms();
  let count = 0;
  await channel.consume("node.large", (message) => {
    if (count === 0) assert(message.content.equals(large));
    count += 1;
    if (count % 100 === 0 || count === 20_001) channel.ack(message, true);
  });
  await until(() => count === 20_001, "everything");
  assert.strictEqual((await channel.deleteQueue("node.large")).messageCount, 0);
}

async function hour() {
  const connection = await amqp.connect(`amqp://127.0.0.1:${port}?heartbeat=5`, { clientProperties: { connection_name: "hour" } });
  await topologyAndConfirms(connection);
  await answers(connection);
  await refusals(connection);
  await largeAndMany(connection);
  await connection.close();
}

hour().then(() => process.exit(0), (error) => {
  console.error(error);
  process.exit(1);
});
