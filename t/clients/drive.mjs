// One client from npm, or Node's own fetch, sends a request to each of the
// URLs on standard input, all at once, with the retries that it has.
//
//     node drive.mjs CLIENT < cells.json
//
// Prints "ready" when it can begin, then a line for each: {"fault", "status", "body"} or {"fault", "error"}.
// Retries are switched on for POST; lists of statuses and waits are the
// client's own, where it has any.  "kept": another request comes first, on a
// connection that stays open.

import http from 'node:http'
import https from 'node:https'
import { createRequire } from 'node:module'

const RETRIES = 5
const TIMEOUT = 10000
const BODY = JSON.stringify({ amount: 1999, currency: 'EUR', order: 'A-17' })
const require = createRequire(import.meta.url)
const name = process.argv[2]

const headers = (key) => ({
  'Idempotency-Key': key, 'Content-Type': 'application/json'
})

// for SDKs that insist on TLS, or on the addresses of their company
const plainly = (port) => (options, callback) => http.request({
  ...options, protocol: 'http:', host: '127.0.0.1', hostname: '127.0.0.1',
  port, agent: undefined, agents: undefined, auth: undefined
}, callback)

const clients = {
  async fetch () {
    return async ({ url, key, kept }) => {
      if (kept) await (await fetch(url)).text()
      const r = await fetch(url + '/payments', {
        method: 'POST', body: BODY, headers: headers(key),
        signal: AbortSignal.timeout(TIMEOUT)
      })
      return [r.status, await r.text()]
    }
  },

  async got () {
    const { default: got } = await import('got')
    return async ({ url, key, kept }) => {
      if (kept) await got(url)
      const r = await got.post(url + '/payments', {
        body: BODY, headers: headers(key), timeout: { request: TIMEOUT },
        retry: { limit: RETRIES, methods: ['POST'] }
      })
      return [r.statusCode, r.body]
    }
  },

  async 'axios-retry' () {
    const { default: axios } = await import('axios')
    const { default: axiosRetry } = await import('axios-retry')
    const client = axios.create({ timeout: TIMEOUT, responseType: 'text' })
    axiosRetry(client, {
      retries: RETRIES,
      shouldResetTimeout: true,
      retryDelay: axiosRetry.exponentialDelay,
      retryCondition: axiosRetry.isRetryableError
    })
    return async ({ url, key, kept }) => {
      if (kept) await client.get(url)
      const r = await client.post(url + '/payments', BODY,
        { headers: headers(key) })
      return [r.status, r.data]
    }
  },

  async undici () {
    const { Agent, RetryAgent, request } = await import('undici')
    const dispatcher = new RetryAgent(
      new Agent({ headersTimeout: TIMEOUT, bodyTimeout: TIMEOUT }),
      { methods: ['POST'], maxRetries: RETRIES })
    return async ({ url, key, kept }) => {
      if (kept) await (await request(url, { dispatcher })).body.text()
      const r = await request(url + '/payments', {
        method: 'POST', body: BODY, headers: headers(key), dispatcher
      })
      return [r.statusCode, await r.body.text()]
    }
  },

  async ky () {
    const { default: ky } = await import('ky')
    return async ({ url, key, kept }) => {
      if (kept) await ky(url).text()
      const r = await ky.post(url + '/payments', {
        body: BODY, headers: headers(key), timeout: TIMEOUT,
        retry: { limit: RETRIES, methods: ['post'], retryOnTimeout: true }
      })
      return [r.status, await r.text()]
    }
  },

  async superagent () {
    const { default: superagent } = await import('superagent')
    return async ({ url, key, kept }) => {
      if (kept) await superagent.get(url)
      const r = await superagent.post(url + '/payments').set(headers(key))
        .timeout(TIMEOUT).retry(RETRIES).send(BODY)
      return [r.status, r.text]
    }
  },

  async paypal () {
    const sdk = require('@paypal/paypal-server-sdk')
    return async ({ url, key }) => {
      const client = new sdk.Client({
        clientCredentialsAuthCredentials: {
          oAuthClientId: 'id', oAuthClientSecret: 'secret'
        },
        environment: sdk.Environment.Sandbox,
        timeout: TIMEOUT,
        httpClientOptions: {
          timeout: TIMEOUT,
          retryConfig: {
            maxNumberOfRetries: RETRIES, retryInterval: 0.3,
            maximumRetryWaitTime: 90, httpMethodsToRetry: ['GET', 'POST']
          }
        },
        unstable_httpClientOptions: {
          transport: { request: plainly(new URL(url).port) }
        }
      })
      const r = await new sdk.OrdersController(client).createOrder({
        paypalRequestId: key,
        body: {
          intent: sdk.CheckoutPaymentIntent.Capture,
          purchaseUnits: [{ amount: { currencyCode: 'EUR', value: '19.99' } }]
        }
      })
      return [r.statusCode, r.body]
    }
  },

  async square () {
    const { SquareClient } = require('square')
    return async ({ url, key }) => {
      const client = new SquareClient({ token: 't', environment: url })
      const { data, rawResponse } = await client.payments.create({
        idempotencyKey: key, sourceId: 'card',
        amountMoney: { amount: BigInt(1999), currency: 'EUR' }
      }, { maxRetries: RETRIES, timeoutInSeconds: TIMEOUT / 1000 })
        .withRawResponse()
      return [rawResponse.status, JSON.stringify({ id: data.payment.id })]
    }
  },

  async adyen () {
    const { Client, CheckoutAPI } = require('@adyen/api-library')
    https.request = (options) => plainly(options.port)(options)
    return async ({ url, key }) => {
      const client = new Client({
        apiKey: 'k', environment: 'TEST', connectionTimeoutMillis: TIMEOUT
      })
      const api = new CheckoutAPI(client).PaymentsApi
      api.baseUrl = url
      const r = await api.payments({
        amount: { currency: 'EUR', value: 1999 }, reference: 'A-17',
        merchantAccount: 'm', returnUrl: 'https://example.com/',
        paymentMethod: { type: 'scheme' }
      }, { idempotencyKey: key, timeout: TIMEOUT })
      return [201, JSON.stringify({ id: r.pspReference })]
    }
  }
}

const send = await clients[name]()
console.log('ready')

// not readFileSync(0): a pipe may be set not to block
let input = ''
for await (const part of process.stdin) input += part
const cells = JSON.parse(input)

await Promise.all(cells.map(async (cell) => {
  let line
  try {
    const [status, body] = await send(cell)
    line = { status, body }
  } catch (e) {
    line = {
      status: Number(e.response?.status ?? e.response?.statusCode ??
        e.statusCode ?? e.status) || undefined,
      error: String(e.code ?? e.cause?.code ?? e.message).slice(0, 200)
    }
  }
  console.log(JSON.stringify({ fault: cell.fault, ...line }))
}))
process.exit(0)
