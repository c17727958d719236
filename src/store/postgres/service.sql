-- Included by schema.sql: what a service calls in its own transaction.


-- The service's side ---------------------------------------------------------

-- A service commits the record of its request together with its work: in a
-- location with "idempotency_unknown transaction" it is sent
-- $idempotency_record and $idempotency_fence, calls begin() first and
-- executed() last in its transaction, and commits.
--
-- Never catch these errors and commit:
--
--   IK001  overtaken: a later attempt has this key, or it was given up
--   IK002  executed before, by this attempt
--   IK003  there is no claim of this key
--   IK004  the location does not have "idempotency_unknown transaction"
--   IK005  begin() without executed()

-- "status" is null: go on.  Otherwise this attempt was committed before, with
-- that answer; "body" is null if the gateway has stored what it received.

CREATE FUNCTION begin(p_key text, p_fence bigint, OUT status integer,
                      OUT type text, OUT body bytea)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = :"schema", pg_catalog, pg_temp AS $$
DECLARE
    now  bigint := clock_us() / 1000;
    r    records;
BEGIN
    SELECT * INTO r FROM records x
    WHERE x.digest = decode(replace(p_key, '-', ''), 'hex')
        FOR NO KEY UPDATE;

    IF NOT FOUND OR r.gone <= now THEN
        RAISE EXCEPTION 'idempotency: there is no claim of this key'
            USING ERRCODE = 'IK003';
    END IF;

    IF r.fence <> p_fence OR r.state NOT IN (2, 3, 4) THEN
        RAISE EXCEPTION 'idempotency: fence % was overtaken, it is % now',
            p_fence, r.fence
            USING ERRCODE = 'IK001', HINT = 'Roll back: a later attempt has '
                  'this key.';
    END IF;

    IF r.state = 4 OR r.flags & 4 <> 0 THEN
        status := r.status;

        IF r.head IS NULL THEN
            type := r.type;
            body := r.body;
        END IF;

        RETURN;
    END IF;

    IF r.flags & 2 = 0 THEN
        RAISE EXCEPTION 'idempotency: the gateway does not expect this '
            'request to commit with its record'
            USING ERRCODE = 'IK004', HINT = 'Set "idempotency_unknown '
                  'transaction" in its location.';
    END IF;

    UPDATE records x SET flags = x.flags | 8 WHERE x.digest = r.digest;
END $$;

CREATE FUNCTION executed(p_key text, p_fence bigint, p_status integer,
                         p_body bytea,
                         p_type text DEFAULT 'application/json')
RETURNS void LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = :"schema", pg_catalog, pg_temp AS $$
DECLARE
    now  bigint := clock_us() / 1000;
    r    records;
BEGIN
    IF p_status IS NULL OR p_status NOT BETWEEN 200 AND 599 THEN
        RAISE EXCEPTION 'idempotency: % is not a final status', p_status
            USING ERRCODE = '22023';
    END IF;

    IF p_type ~ '[[:cntrl:]]' THEN
        RAISE EXCEPTION 'idempotency: control characters in the type'
            USING ERRCODE = '22023';
    END IF;

    UPDATE records x SET
        flags = x.flags & 2 | 5, status = p_status, type = p_type,
        body = coalesce(p_body, ''), head = NULL,
        until = now + x.ttl * 1000::bigint,
        gone = now + (x.ttl + x.tombstone::bigint) * 1000
    WHERE x.digest = decode(replace(p_key, '-', ''), 'hex')
          AND x.fence = p_fence
          AND x.state IN (2, 3) AND x.flags & 6 = 2 AND x.gone > now;

    IF FOUND THEN
        RETURN;
    END IF;

    SELECT * INTO r FROM records x
    WHERE x.digest = decode(replace(p_key, '-', ''), 'hex');

    IF NOT FOUND OR r.gone <= now THEN
        RAISE EXCEPTION 'idempotency: there is no claim of this key'
            USING ERRCODE = 'IK003';
    END IF;

    IF r.fence <> p_fence OR r.state NOT IN (2, 3, 4) THEN
        RAISE EXCEPTION 'idempotency: fence % was overtaken, it is % now',
            p_fence, r.fence
            USING ERRCODE = 'IK001', HINT = 'Roll back: a later attempt has '
                  'this key.';
    END IF;

    IF r.flags & 2 = 0 THEN
        RAISE EXCEPTION 'idempotency: the gateway does not expect this '
            'request to commit with its record'
            USING ERRCODE = 'IK004', HINT = 'Set "idempotency_unknown '
                  'transaction" in its location.';
    END IF;

    RAISE EXCEPTION 'idempotency: this attempt was executed before'
        USING ERRCODE = 'IK002', HINT = 'Roll back, and answer with what '
              'begin() returns.';
END $$;

-- begin() writes flag 8 and executed() takes it back: no transaction commits
-- with it.

CREATE FUNCTION require_executed() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = :"schema", pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM records x
               WHERE x.digest = NEW.digest AND x.flags & 8 <> 0)
    THEN
        RAISE EXCEPTION 'idempotency: begin() was called and executed() was '
            'not'
            USING ERRCODE = 'IK005', HINT = 'Call executed() as the last '
                  'statement before COMMIT.';
    END IF;

    RETURN NULL;
END $$;

CREATE CONSTRAINT TRIGGER records_require_executed
    AFTER UPDATE OF flags ON records
    DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.flags & 8 <> 0)
    EXECUTE FUNCTION require_executed();
