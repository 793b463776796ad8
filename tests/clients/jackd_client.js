// The client jackd, with a server on the port of the argument.
const assert = require('assert');
const module_ = require('jackd');
const Client = module_.default || module_;

async function run(port) {
  const client = new Client();
  await client.connect({ host: '127.0.0.1', port });
  assert.strictEqual(await client.use('mail'), 'mail');
  assert.strictEqual(Number(await client.watch('mail')), 2);
  const id = await client.put('two\r\nlines', { priority: 3, ttr: 60 });
  let job = await client.reserveWithTimeout(1);
  assert.strictEqual(String(job.id), String(id));
  assert.strictEqual(job.payload.toString(), 'two\r\nlines');
  await client.touch(id);
  await client.release(id, { priority: 9, delay: 0 });
  job = await client.reserveJob(id);
  await client.bury(id, 1);
  assert.strictEqual((await client.peekBuried()).payload.toString(), 'two\r\nlines');
  assert.strictEqual(Number(await client.kick(5)), 1);
  assert.match(String(await client.statsJob(id)), /state: ready/);
  assert.match(String(await client.statsTube('mail')), /current-jobs-ready: 1/);
  assert.match(String(await client.stats()), /current-jobs-ready: 1/);
  await client.delete(id);
  await assert.rejects(client.peek(id), /NOT_FOUND/);
  await assert.rejects(client.reserveWithTimeout(0), /TIMED_OUT/);
  const waiting = client.reserve();
  const other = new Client();
  await other.connect({ host: '127.0.0.1', port });
  await other.use('mail');
  const last = await other.put('late');
  assert.strictEqual(String((await waiting).id), String(last));
  await client.delete(last);
  await client.quit();
  await other.quit();
}

run(Number(process.argv[2])).catch((error) => {
  console.error(error);
  process.exit(1);
});
