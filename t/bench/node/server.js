// An Express application that takes payments, as it is or with one of two
// packages for idempotency keys, used as their own pages say.
//
//     node server.js PORT ANSWERS [PACKAGE REDIS-URL]
//
// ANSWERS is a folder with what to answer; GET /executed tells how many
// requests the application has executed.

'use strict';

const fs = require('fs');
const modules = process.env.BENCH_MODULES + '/';
const express = require(modules + 'express');

const [port, answers, name, url] = process.argv.slice(2);

const packages = {
    async 'express-idempotency'() {
        const { idempotency, getSharedIdempotencyService } =
            require(modules + 'express-idempotency');
        const Adapter =
            require(modules + 'express-idempotency-redis-adapter').default;
        const dataAdapter = new Adapter({ connectionConfig: { url } });

        await dataAdapter.connect();

        return {
            middleware: idempotency({ dataAdapter }),
            answered: req => getSharedIdempotencyService().isHit(req),
        };
    },

    // there is a middleware for Express in its repository, but not on npm:
    // this does what that one does
    async '@node-idempotency/core'() {
        const { Idempotency } = require(modules + '@node-idempotency/core');
        const { RedisStorageAdapter } =
            require(modules + '@node-idempotency/storage-adapter-redis');
        const storage = new RedisStorageAdapter({ url });

        await storage.connect();

        const core = new Idempotency(storage);

        return {
            answered: () => false,
            async middleware(req, res, next) {
                const request = { method: req.method, path: req.url,
                                  headers: req.headers, body: req.body };
                try {
                    const old = await core.onRequest(request);

                    if (old) {
                        res.status(old.additional.statusCode)
                           .type(old.additional.type)
                           .set('Idempotent-Replayed', 'true')
                           .send(old.body);
                        return;
                    }
                } catch (error) {
                    next(error);
                    return;
                }

                const send = res.send.bind(res);

                res.send = body => {
                    core.onResponse(request, {
                        body,
                        additional: { statusCode: res.statusCode,
                                      type: res.get('Content-Type') },
                    }).catch(console.error);
                    return send(body);
                };

                next();
            },
        };
    },
};

async function main() {
    const texts = {};

    for (const file of fs.readdirSync(answers)) {
        texts[file] = fs.readFileSync(answers + '/' + file, 'utf8');
    }

    const app = express();
    const pack = name ? await packages[name]()
                      : { answered: () => false, middleware: null };
    let executed = 0;

    // the answer's head is that of the nginx upstream, nearly
    app.disable('x-powered-by');
    app.disable('etag');

    app.get('/executed', (req, res) => res.send(String(executed)));

    app.use(express.json({ limit: '4mb' }));

    if (pack.middleware) {
        app.use(pack.middleware);
    }

    const pay = (req, res) => {
        if (pack.answered(req)) {
            return;
        }

        executed++;
        res.status(201).type('application/json')
           .send(texts[req.params.size || '0']);
    };

    app.post('/payments', pay);
    app.post('/sized/:size', pay);

    const server = app.listen(Number(port), '127.0.0.1', 1024);

    // a connection that the gateway keeps must not be closed under it
    server.keepAliveTimeout = 3600 * 1000;
}

main().catch(error => {
    console.error(error);
    process.exit(1);
});
