// Stripe's own library against a gateway: reads jobs from standard input as
// JSON, does all of them at once, and writes what came of each.
//
//     node stripe.js PATH-OF-LIBRARY PORT
//     [{"key": "k1", "amount": 100, "act": "ok"}, ...]

'use strict';

const Stripe = require(process.argv[2]);

const stripe = new Stripe('sk_test_gateway', {
  host: '127.0.0.1',
  port: Number(process.argv[3]),
  protocol: 'http',
  timeout: 20000,
  telemetry: false,
});

async function run(job) {
  const params = {
    amount: job.amount,
    currency: 'eur',
    source: 'tok_visa',
    metadata: { act: job.act, job: job.key || 'none' },
  };

  const options = { maxNetworkRetries: job.retries || 8 };

  if (job.key !== null) {
    options.idempotencyKey = job.key;
  }

  try {
    const charge = await (job.refund ? stripe.refunds : stripe.charges).create(
      job.refund ? { amount: job.amount, metadata: params.metadata } : params,
      options);
    return { id: charge.id, status: charge.lastResponse.statusCode };
  } catch (e) {
    return { error: e.constructor.name, type: e.rawType, code: e.code,
             status: e.statusCode, message: e.message };
  }
}

let input = '';
process.stdin.on('data', (data) => { input += data; });
process.stdin.on('end', async () => {
  const answers = await Promise.all(JSON.parse(input).map(run));
  process.stdout.write(JSON.stringify(answers));
});
