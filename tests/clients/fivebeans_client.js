// The client fivebeans, with a server on the port of the argument.
const assert = require('assert');
const Fivebeans = require('fivebeans').client;

const client = new Fivebeans('127.0.0.1', Number(process.argv[2]));
const call = (name, ...words) => new Promise((resolve, reject) => {
  client[name](...words, (error, ...answer) => (error ? reject(new Error(String(error))) : resolve(answer)));
});

async function run() {
  assert.deepStrictEqual(await call('use', 'mail'), ['mail']);
  assert.deepStrictEqual((await call('watch', 'mail')).map(Number), [2]);
  const [id] = await call('put', 3, 0, 60, 'a body');
  const [reserved, payload] = await call('reserve_with_timeout', 1);
  assert.strictEqual(String(reserved), String(id));
  assert.strictEqual(payload.toString(), 'a body');
  await call('touch', id);
  await call('bury', id, 5);
  assert.strictEqual((await call('peek_buried'))[1].toString(), 'a body');
  assert.deepStrictEqual((await call('kick', 9)).map(Number), [1]);
  const [job] = await call('stats_job', id);
  assert.strictEqual(job.state, 'ready');
  assert.strictEqual(job.tube, 'mail');
  const [tube] = await call('stats_tube', 'mail');
  assert.strictEqual(tube['current-jobs-ready'], 1);
  const [stats] = await call('stats');
  assert.strictEqual(stats['current-jobs-ready'], 1);
  assert.deepStrictEqual((await call('list_tubes_watched'))[0].sort(), ['default', 'mail']);
  await call('destroy', id);
  await assert.rejects(call('peek', id), /NOT_FOUND/);
  await assert.rejects(call('reserve_with_timeout', 0), /TIMED_OUT/);
}

client.on('connect', () => run().then(() => client.quit(), (error) => {
  console.error(error);
  process.exit(1);
})).on('error', (error) => {
  console.error(error);
  process.exit(1);
}).connect();
