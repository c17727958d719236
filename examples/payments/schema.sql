-- Every operation that was ever begun.  The primary key is the unique index:
-- of two transactions with one key the second waits for the first.

CREATE TABLE IF NOT EXISTS operations (
    key      text PRIMARY KEY,
    version  bigint NOT NULL,         -- the highest fence seen
    answer   text                     -- set by the transaction that pays
);

CREATE TABLE IF NOT EXISTS accounts (
    name     text PRIMARY KEY,
    balance  bigint NOT NULL
);

CREATE TABLE IF NOT EXISTS entries (
    number     bigserial PRIMARY KEY,
    operation  text NOT NULL REFERENCES operations,
    account    text NOT NULL REFERENCES accounts,
    amount     bigint NOT NULL,
    UNIQUE (operation, account)
);

INSERT INTO accounts VALUES ('alice', 1000000), ('shop', 0)
    ON CONFLICT DO NOTHING;
