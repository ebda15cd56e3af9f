import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';
import kafkajs from 'kafkajs';
import { arm, ask } from './barnabas.js';

const { Kafka, Partitioners, logLevel } = kafkajs;
const kafka = new Kafka({ brokers: [process.env.BARNABAS_BOOTSTRAP], logLevel: logLevel.NOTHING });

const payer = () =>
  kafka.producer({
    transactionalId: 'payer',
    maxInFlightRequests: 1,
    idempotent: true,
    createPartitioner: Partitioners.DefaultPartitioner,
  });

/** What readers of committed payments see: the broker says it without a client. */
async function paid() {
  const { records } = await ask('records', { topic: 'payments', partition: 0, committed: true });
  return records.map(({ value }) => Buffer.from(value, 'base64').toString());
}

beforeEach(async () => {
  await ask('reset');
  await ask('create_topics', { topics: { payments: 1 } });
});

// kafkajs doesn't ask again: an application that takes this for an abort would pay twice.
test('a commit that failed, as far as kafkajs knows, has paid', async () => {
  const fault = await arm({ api: 'EndTxn', do: 'error', error: 'COORDINATOR_NOT_AVAILABLE', at: 'answer' });
  const producer = payer();
  await producer.connect();
  const transaction = await producer.transaction();
  await transaction.send({ topic: 'payments', messages: [{ value: 'ten' }] });
  await assert.rejects(transaction.commit(), /coordinator is not available/);
  await producer.disconnect();
  assert.equal((await fault.disarm()).fired, 1);
  assert.deepEqual(await paid(), ['ten']);
});

test('readers wait until a transaction has its marker', async () => {
  const fault = await arm({ do: 'hold', at: 'marker' });
  const producer = payer();
  await producer.connect();
  const transaction = await producer.transaction();
  await transaction.send({ topic: 'payments', messages: [{ value: 'ten' }] });
  await transaction.commit();
  await fault.reached();
  assert.deepEqual(await paid(), []);
  await fault.disarm();
  while (!(await paid()).length) await new Promise((resolve) => setTimeout(resolve, 5));
  await producer.disconnect();
});
