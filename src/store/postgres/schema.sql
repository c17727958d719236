-- ngx_http_idempotency_module: the store in PostgreSQL, 13 or newer.
--
--     psql -X -v ON_ERROR_STOP=1 -1 -f schema.sql DATABASE
--
-- Variables, each with its default:
--
--     -v schema=idempotency            where tables and functions are created
--     -v gateway=idempotency_gateway   role that may call what nginx calls
--     -v service=idempotency_service   role that may call begin() and executed()
--
-- The roles are created if they do not exist, without the right to log in:
-- grant them to the roles that do.  See docs/operate/postgres.md.
--
-- Every operation of the gateway is one function call.  Its rules are those of
-- store/transition.c and of the scripts for Redis; t/220-model-transitions.py
-- compares them line by line.  No function of the gateway waits for the lock of
-- a record: a service that holds it is at work, and the key is in progress.

\if :{?schema}
\else
\set schema idempotency
\endif

\if :{?gateway}
\else
\set gateway idempotency_gateway
\endif

\if :{?service}
\else
\set service idempotency_service
\endif

CREATE SCHEMA :"schema";

SET search_path = :"schema", pg_catalog, pg_temp;


-- Tables ---------------------------------------------------------------------

-- state: 0 free, 1 issued, 2 executing, 3 unknown, 4 done.  A free record is
-- kept for a while: it refuses late claims of its last owners.
--
-- flags: 1 the answer is kept
--        2 the service commits the record together with its work
--        4 that transaction has committed; the answer is the service's until
--          the gateway adds the header that it has received
--        8 begin() was called in this transaction, and executed() was not; the
--          trigger below keeps it from being committed
--
-- Times are milliseconds since 1970 by the clock of this server.  No index has
-- a column that a completion changes, so that completions are HOT updates.

CREATE TABLE records (
    fence        bigint    NOT NULL,
    lease        bigint    NOT NULL,    -- its end, or that of a probe; of a
                                        -- done record: when it was done
    until        bigint    NOT NULL,    -- end of a done record's ttl
    gone         bigint    NOT NULL,    -- reads as nothing from then on
    issued       bigint    NOT NULL,    -- end of an issued key, 0: none
    created      bigint    NOT NULL,    -- seconds
    owner        uuid      NOT NULL,
    check_hour   integer   NOT NULL,    -- when expire() looks at it
    attempts     integer   NOT NULL,
    keep         integer   NOT NULL,    -- seconds behind its lease
    ttl          integer   NOT NULL,    -- seconds
    tombstone    integer   NOT NULL,    -- seconds
    state        smallint  NOT NULL,
    flags        smallint  NOT NULL,
    status       smallint  NOT NULL,
    digest       bytea     NOT NULL,    -- $idempotency_record
    fingerprint  bytea     NOT NULL,
    dead         bytea     NOT NULL,    -- up to eight owners that gave it up
    note         bytea,                 -- of the gateway, for operators
    head         bytea,                 -- encoded by the gateway
    type         text,                  -- Content-Type, by the service
    body         bytea,
    CONSTRAINT records_pkey PRIMARY KEY (digest)
) WITH (fillfactor = 85,
        autovacuum_vacuum_scale_factor = 0.02,
        autovacuum_vacuum_insert_scale_factor = 0.05,
        autovacuum_analyze_scale_factor = 0.05);

ALTER TABLE records ALTER head SET STORAGE MAIN,
                    ALTER body SET STORAGE EXTERNAL;

CREATE INDEX records_check_hour ON records (check_hour);

-- How far a sequence has come: the first half of a digest names it.  Numbers
-- are unsigned and stored less 2^63.  No epoch: nothing was claimed yet.

CREATE TABLE sequences (
    sequence  bytea   PRIMARY KEY,
    epoch     bigint,
    next      bigint,
    until     bigint  NOT NULL
) WITH (fillfactor = 70);

-- The last request with a source, scope and fingerprint, whatever its key.

CREATE TABLE last_requests (
    suspect  bytea   PRIMARY KEY,
    digest   bytea   NOT NULL,
    owner    uuid    NOT NULL,
    made     bigint  NOT NULL,
    until    bigint  NOT NULL
) WITH (fillfactor = 70);

CREATE INDEX last_requests_until ON last_requests (until);

-- What every operation answers.  Of a record that is not shown only "result"
-- and "now" are set.

CREATE TYPE outcome AS (
    result       smallint,   -- 0 ok, 1 granted, 2 exists, 3 not issued,
                             -- 4 refused, 5 out of order, 6 locked: ask again
    now          bigint,
    state        smallint,   -- as it reads now; 5: tombstone; null: no record
    flags        smallint,
    status       smallint,
    attempts     integer,
    fence        bigint,
    created      bigint,
    lease        bigint,
    due          bigint,     -- when time ends this state
    expected     bigint,     -- out of order: the next number, less 2^63
    fingerprint  bytea,
    note         bytea,
    head         bytea,
    type         text,
    body         bytea
);


-- Helpers --------------------------------------------------------------------

CREATE FUNCTION version() RETURNS integer
LANGUAGE sql IMMUTABLE AS $$ SELECT 1 $$;

CREATE FUNCTION clock_us() RETURNS bigint
LANGUAGE sql VOLATILE AS
$$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint $$;

-- The state of a record at a moment, NULL if it is gone.  Work that has
-- committed leaves the owner one second to store the answer with its header.

CREATE FUNCTION reads(r records, now bigint) RETURNS smallint
LANGUAGE sql IMMUTABLE AS $$
    SELECT (CASE
        WHEN r.gone IS NULL OR r.gone <= now THEN NULL
        WHEN r.flags & 4 <> 0 AND r.state IN (2, 3) THEN
            CASE WHEN r.state = 2 AND r.lease > now
                      AND r.until - r.ttl * 1000::bigint + 1000 > now THEN 2
                 WHEN r.until > now THEN 4
                 ELSE 5 END
        WHEN r.state = 2 AND r.lease <= now THEN 3
        WHEN r.state = 4 AND r.until <= now THEN 5
        ELSE r.state END)::smallint
$$;

CREATE FUNCTION show(result integer, r records, st smallint, now bigint,
                     answer boolean) RETURNS outcome
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN st IS NULL
        THEN ROW(result, now, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
                 NULL, NULL, NULL, NULL, NULL, NULL)::outcome
        ELSE ROW(result, now, st, r.flags, r.status, r.attempts, r.fence,
                 r.created,
                 CASE WHEN st >= 4 AND r.state <> 4
                      THEN r.until - r.ttl * 1000::bigint ELSE r.lease END,
                 CASE WHEN st = 4 THEN r.until ELSE r.gone END,
                 NULL, r.fingerprint, r.note,
                 CASE WHEN answer AND st = 4 THEN r.head END,
                 CASE WHEN answer AND st = 4 THEN r.type END,
                 CASE WHEN answer AND st = 4 THEN r.body END)::outcome
        END
$$;

CREATE FUNCTION add_dead(dead bytea, owner uuid) RETURNS bytea
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN owner = '00000000-0000-0000-0000-000000000000'
                     OR position(uuid_send(owner) IN dead) > 0 THEN dead
                ELSE substr(dead || uuid_send(owner),
                            greatest(1, length(dead) + 16 - 127)) END
$$;

-- Writes a record that the caller has locked; returns when it will be gone.

CREATE FUNCTION store(r records, now bigint) RETURNS bigint
LANGUAGE sql VOLATILE AS $$
    UPDATE records x SET
        fence = r.fence, lease = r.lease, until = r.until, issued = r.issued,
        created = r.created, owner = r.owner, attempts = r.attempts,
        keep = r.keep, ttl = r.ttl, tombstone = r.tombstone, state = r.state,
        flags = r.flags, status = r.status, fingerprint = r.fingerprint,
        dead = r.dead, note = r.note, head = r.head, type = r.type,
        body = r.body,
        gone = CASE
            WHEN r.state = 4 OR r.state IN (2, 3) AND r.flags & 4 <> 0
                THEN r.until + r.tombstone * 1000::bigint
            WHEN r.state IN (2, 3) THEN r.lease + r.keep * 1000::bigint
            WHEN r.state = 1 THEN r.issued
            ELSE r.until END
    WHERE x.digest = r.digest RETURNING x.gone
$$;

-- A record that its owner believes to hold and that is not there.

CREATE FUNCTION new_record(p_digest bytea, p_owner uuid, p_fingerprint bytea,
                           p_lease bigint, p_keep integer, p_ttl integer,
                           p_tombstone integer, p_fence bigint, p_flags integer,
                           p_note bytea, now bigint)
RETURNS records LANGUAGE sql IMMUTABLE AS $$
    SELECT ROW(p_fence, now + p_lease, 0,
               now + p_lease + p_keep * 1000::bigint, 0, now / 1000, p_owner,
               (now / 1000 + least(p_ttl, 2000000000)) / 3600 + 1,
               1, p_keep, p_ttl, p_tombstone, 2, p_flags, 0, p_digest,
               p_fingerprint, '', p_note, NULL, NULL, NULL)::records
$$;

-- Free again; or issued, if it was issued and that time is not over.

CREATE FUNCTION free(r records, now bigint, back boolean, stub integer)
RETURNS records LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    r.status := 0;
    r.flags := r.flags & 2;
    r.note := NULL;
    r.head := NULL;
    r.type := NULL;
    r.body := NULL;

    IF back AND r.issued > now THEN
        r.state := 1;
    ELSE
        r.state := 0;
        r.issued := 0;
        r.keep := coalesce(stub, r.keep);
        r.until := now + r.keep * 1000::bigint;
    END IF;

    RETURN r;
END $$;

-- How long a free record is kept: a number of a sequence says for as long as
-- its sequence lasts that it is free.

CREATE FUNCTION stub_ttl(p_digest bytea, now bigint) RETURNS integer
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN EXISTS (SELECT FROM sequences s
                             WHERE s.sequence = substr(p_digest, 1, 16)
                                   AND s.epoch IS NOT NULL AND s.until > now)
                THEN NULL ELSE 600 END
$$;


-- Operations -----------------------------------------------------------------

\ir owner.sql
\ir others.sql
\ir service.sql


-- Expiry ---------------------------------------------------------------------

-- Deletes at most p_look records that are gone, and drops the answers of
-- tombstones; a record that is not gone is looked at again in its hour.  With
-- p_rest also what sequences and last requests have left.  One caller at a time
-- in the whole database, others get -1.

CREATE FUNCTION expire(p_look integer, p_rest boolean) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = :"schema", pg_catalog, pg_temp AS $$
DECLARE
    now   bigint := clock_us() / 1000;
    hour  integer := now / 3600000;
    rows  tid[];
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtext('idempotency.expire'),
                                     hashtext(current_schema()))
    THEN
        RETURN -1;
    END IF;

    rows := ARRAY(SELECT x.ctid FROM records x WHERE x.check_hour < hour
                  ORDER BY x.check_hour LIMIT p_look
                  FOR UPDATE SKIP LOCKED);

    DELETE FROM records x WHERE x.ctid = ANY (rows) AND x.gone <= now;

    UPDATE records x SET
        check_hour = least(x.gone / 3600000 + 1, 2147483647),
        head = CASE WHEN x.state = 4 AND x.until <= now THEN NULL
                    ELSE x.head END,
        type = CASE WHEN x.state = 4 AND x.until <= now THEN NULL
                    ELSE x.type END,
        body = CASE WHEN x.state = 4 AND x.until <= now THEN NULL
                    ELSE x.body END
        WHERE x.ctid = ANY (rows) AND x.gone > now;

    IF p_rest THEN
        DELETE FROM sequences x WHERE x.ctid = ANY (ARRAY(
            SELECT y.ctid FROM sequences y WHERE y.until <= now LIMIT 10000
            FOR UPDATE SKIP LOCKED));

        DELETE FROM last_requests x WHERE x.ctid = ANY (ARRAY(
            SELECT y.ctid FROM last_requests y WHERE y.until <= now LIMIT 10000
            FOR UPDATE SKIP LOCKED));
    END IF;

    RETURN cardinality(rows);
END $$;


-- Roles ----------------------------------------------------------------------

SELECT NOT EXISTS (SELECT FROM pg_roles WHERE rolname = :'gateway') AS missing
\gset
\if :missing
CREATE ROLE :"gateway" NOLOGIN;
\endif

SELECT NOT EXISTS (SELECT FROM pg_roles WHERE rolname = :'service') AS missing
\gset
\if :missing
CREATE ROLE :"service" NOLOGIN;
\endif

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA :"schema" FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA :"schema" FROM PUBLIC;

GRANT USAGE ON SCHEMA :"schema" TO :"gateway", :"service";

GRANT EXECUTE ON FUNCTION version, claim, complete, release, mark_unknown,
    renew, probe, issue, cancel, resolve, purge, read_record, settled, list, suspect,
    suspect_keep, expire TO :"gateway";

GRANT EXECUTE ON FUNCTION begin, executed TO :"service";

RESET search_path;
