-- Included by schema.sql: what others than the owner of a record do to it.


-- What others do to a record -------------------------------------------------

-- A record whose lock is held is in work: it is refused, or shown so.

CREATE FUNCTION change(
    p_op text, p_digest bytea, p_lease bigint, p_ttl integer,
    p_tombstone integer, p_fence bigint, p_granted bigint, p_kept boolean,
    p_status integer, p_head bytea, p_body bytea)
RETURNS outcome LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    nobody  CONSTANT uuid := '00000000-0000-0000-0000-000000000000';
    zeros   CONSTANT bytea := decode(repeat('00', 34), 'hex');
    now_us  bigint := clock_us();
    now     bigint := now_us / 1000;
    given   bigint := CASE WHEN p_granted > 0 THEN p_granted ELSE now_us END;
    result  integer := 4;
    changed boolean := false;
    answer  boolean := false;
    r       records;
    st      smallint;
BEGIN
    SELECT * INTO r FROM records x WHERE x.digest = p_digest
        FOR NO KEY UPDATE SKIP LOCKED;

    IF NOT FOUND THEN
        SELECT * INTO r FROM records x WHERE x.digest = p_digest;

        IF FOUND THEN
            st := reads(r, now);
            RETURN show(CASE WHEN p_op = 'probe' AND p_fence = 0 THEN 2
                             ELSE 4 END, r,
                        CASE WHEN st IN (3, 4) AND r.state < 4 THEN 2
                             ELSE st END::smallint, now, true);
        END IF;
    END IF;

    st := reads(r, now);

    IF st = 4 AND r.state <> 4 THEN       -- its work has committed
        r.state := 4;
        r.lease := r.until - r.ttl * 1000::bigint;
        changed := true;
    END IF;

    IF p_op = 'probe' AND p_fence <> 0 THEN
        IF st = 3 AND r.state = 3 AND r.fence = p_fence THEN
            r.lease := now;
            result := 0;
            changed := true;
        END IF;

    ELSIF p_op = 'probe' THEN
        IF st IS DISTINCT FROM 3 OR r.lease > now THEN
            result := 2;
            answer := true;
        ELSE
            r.state := 3;
            r.lease := now + p_lease;
            r.fence := greatest(r.fence + 1, given);
            result := 1;
            changed := true;
        END IF;

    ELSIF p_op IN ('issue', 'cancel') THEN
        IF p_op = 'cancel' AND st >= 4 AND r.attempts = 0
           AND r.status = p_status
        THEN
            result := 0;                  -- it was cancelled before

        ELSIF coalesce(st, 0) = 0 OR p_op = 'cancel' AND st = 1 THEN
            IF r.digest IS NULL THEN
                r := new_record(p_digest, nobody, zeros, 0, 600, p_ttl,
                                p_tombstone, given, 0, NULL, now);
                INSERT INTO records SELECT (r).* ON CONFLICT DO NOTHING;

                IF NOT FOUND THEN
                    RETURN ROW(6, now, NULL, NULL, NULL, NULL, NULL, NULL,
                               NULL, NULL, NULL, NULL, NULL, NULL, NULL,
                               NULL)::outcome;
                END IF;

                r.attempts := 0;
            ELSE
                IF st IS NULL THEN
                    r.owner := nobody;
                    r.attempts := 0;
                    r.dead := '';
                    r.fence := 0;
                END IF;

                r.fence := greatest(r.fence + 1, given);
            END IF;

            r.created := now / 1000;
            r.lease := now;
            r.fingerprint := zeros;
            r.note := NULL;
            r.flags := 0;
            r.status := 0;

            IF p_op = 'issue' THEN
                r.state := 1;
                r.issued := now + p_ttl * 1000::bigint;
                r.until := r.issued;
            ELSE
                r.state := 4;
                r.status := p_status;
                r.attempts := 0;
                r.owner := nobody;
                r.dead := '';
                r.issued := 0;
                r.until := now + p_ttl * 1000::bigint;
                r.ttl := p_ttl;
                r.tombstone := p_tombstone;
            END IF;

            result := 0;
            changed := true;
        END IF;

    ELSIF p_op = 'executed' THEN
        answer := true;

        IF st = 3 AND r.fence = p_fence THEN
            r.state := 4;
            r.owner := nobody;
            r.status := p_status;
            r.flags := r.flags & 2 | CASE WHEN p_kept THEN 1 ELSE 0 END;
            r.lease := now;
            r.until := now + p_ttl * 1000::bigint;
            r.ttl := p_ttl;
            r.tombstone := p_tombstone;
            r.head := p_head;
            r.type := NULL;
            r.body := p_body;
            r.dead := '';
            result := 0;
            changed := true;
            answer := false;
        END IF;

    ELSIF p_op = 'not_executed' THEN
        IF st = 3 AND r.fence = p_fence THEN
            r := free(r, now, true, stub_ttl(p_digest, now));
            result := 0;
            changed := true;
        END IF;

    ELSIF st IN (1, 3, 4, 5) AND r.fence = p_fence THEN      -- purge
        r := free(r, now, false, stub_ttl(p_digest, now));
        result := 0;
        changed := true;
    END IF;

    IF changed THEN
        r.gone := store(r, now);
    END IF;

    RETURN show(result, r, reads(r, now), now, answer);
END $$;

CREATE FUNCTION probe(p_digest bytea, p_lease bigint, p_fence bigint,
                      p_granted bigint)
RETURNS outcome LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = :"schema", pg_catalog, pg_temp AS $$
BEGIN
    RETURN change('probe', p_digest, p_lease, 0, 0, p_fence, p_granted, false,
                  0, NULL, NULL);
END $$;

CREATE FUNCTION issue(p_digest bytea, p_ttl integer, p_granted bigint)
RETURNS outcome LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = :"schema", pg_catalog, pg_temp AS $$
BEGIN
    RETURN change('issue', p_digest, 0, p_ttl, 0, 0, p_granted, false, 0, NULL,
                  NULL);
END $$;

CREATE FUNCTION cancel(p_digest bytea, p_ttl integer, p_tombstone integer,
                       p_granted bigint, p_status integer)
RETURNS outcome LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = :"schema", pg_catalog, pg_temp AS $$
BEGIN
    RETURN change('cancel', p_digest, 0, p_ttl, p_tombstone, 0, p_granted,
                  false, p_status, NULL, NULL);
END $$;

CREATE FUNCTION resolve(
    p_digest bytea, p_fence bigint, p_executed boolean, p_ttl integer,
    p_tombstone integer, p_kept boolean, p_status integer, p_head bytea,
    p_body bytea)
RETURNS outcome LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = :"schema", pg_catalog, pg_temp AS $$
BEGIN
    RETURN change(CASE WHEN p_executed THEN 'executed' ELSE 'not_executed' END,
                  p_digest, 0, p_ttl, p_tombstone, p_fence, 0, p_kept,
                  p_status, p_head, p_body);
END $$;

CREATE FUNCTION purge(p_digest bytea, p_fence bigint)
RETURNS outcome LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = :"schema", pg_catalog, pg_temp AS $$
BEGIN
    RETURN change('purge', p_digest, 0, 0, 0, p_fence, 0, false, 0, NULL, NULL);
END $$;

CREATE FUNCTION read_record(p_digest bytea, p_bare boolean)
RETURNS outcome LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = :"schema", pg_catalog, pg_temp AS $$
DECLARE
    now  bigint := clock_us() / 1000;
    r    records;
BEGIN
    SELECT * INTO r FROM records x WHERE x.digest = p_digest;
    RETURN show(0, r, reads(r, now), now, NOT p_bare);
END $$;

-- Which of these records are not executing any more?  One call for all that the
-- duplicates of a worker wait for.

CREATE FUNCTION settled(p_digest bytea[])
RETURNS bytea[] LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = :"schema", pg_catalog, pg_temp AS $$
DECLARE
    now  bigint := clock_us() / 1000;
BEGIN
    RETURN ARRAY(SELECT u.d FROM unnest(p_digest) u(d)
                 LEFT JOIN records x ON x.digest = u.d
                 WHERE reads(x, now) IS DISTINCT FROM 2);
END $$;

-- Up to p_look records behind a digest, and of these the ones of one state.
-- The last row has how many were seen, and where to go on; NULL: the end.

CREATE FUNCTION list(p_state integer, p_after bytea, p_look integer,
                     p_entries integer)
RETURNS TABLE (digest bytea, sequence boolean, seen integer, record outcome)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = :"schema", pg_catalog, pg_temp AS $$
DECLARE
    now    bigint := clock_us() / 1000;
    looked integer := 0;
    found  integer := 0;
    known  integer := 0;
    r      records;
    st     smallint;
BEGIN
    FOR r IN SELECT x.* FROM records x WHERE x.digest > p_after
             ORDER BY x.digest LIMIT p_look
    LOOP
        looked := looked + 1;

        -- records of a dry run are not shown

        IF substr(r.digest, 25) = '\x6472792072756e00' THEN
            CONTINUE;
        END IF;

        known := known + 1;
        st := reads(r, now);

        -- 0: any state but that of a stub

        IF st = p_state OR p_state = 0 AND st <> 0 THEN
            digest := r.digest;
            sequence := stub_ttl(r.digest, now) IS NULL;
            seen := 0;
            record := show(0, r, st, now, false);
            RETURN NEXT;

            found := found + 1;
            EXIT WHEN found = p_entries;
        END IF;
    END LOOP;

    digest := CASE WHEN looked = p_look OR found = p_entries
                   THEN r.digest END;
    sequence := NULL;
    seen := known;
    record := NULL;
    RETURN NEXT;
END $$;


-- The same request under another key -----------------------------------------

-- p_flags: 64 it is executed in any case

CREATE FUNCTION suspect(
    p_digest bytea, p_owner uuid, p_suspect bytea, p_lease bigint,
    p_window bigint, p_ttl integer, p_flags integer)
RETURNS outcome LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = :"schema", pg_catalog, pg_temp AS $$
DECLARE
    now   bigint := clock_us() / 1000;
    ends  bigint := now + p_ttl * 1000::bigint;
    r     records;
    l     last_requests;
    st    smallint;
    o     outcome;
BEGIN
    SELECT * INTO r FROM records x WHERE x.digest = p_digest;

    IF NOT FOUND OR r.state <> 2 OR r.owner <> p_owner THEN
        RETURN show(4, r, NULL, now, false);
    END IF;

    LOOP
        SELECT * INTO l FROM last_requests x WHERE x.suspect = p_suspect
            FOR UPDATE;
        EXIT WHEN FOUND;

        INSERT INTO last_requests VALUES (p_suspect, p_digest, p_owner, now,
                                          ends)
            ON CONFLICT DO NOTHING;

        IF FOUND THEN
            RETURN show(1, r, NULL, now, false);
        END IF;
    END LOOP;

    IF l.until > now AND l.digest <> p_digest THEN
        SELECT * INTO r FROM records x WHERE x.digest = l.digest;
        st := reads(r, now);

        IF st IN (2, 3)
           OR st >= 4 AND NOT (r.attempts = 0 AND r.status = 410)
              AND now - (CASE WHEN r.state = 4 THEN r.lease
                              ELSE r.until - r.ttl * 1000::bigint END)
                  < p_window * 1000
           OR coalesce(st, 0) < 2
              AND NOT (st IS NOT NULL AND r.owner = l.owner)
              AND now - l.made < p_lease
        THEN
            o := show(2, r, st, now, false);
            o.fingerprint := l.digest || '\x0000';

            -- a request that is not settled stays the last one

            IF p_flags & 64 = 0 OR coalesce(st, 0) < 4 THEN
                RETURN o;
            END IF;
        END IF;
    END IF;

    UPDATE last_requests x SET digest = p_digest, owner = p_owner, made = now,
        until = ends
        WHERE x.suspect = p_suspect;

    RETURN CASE WHEN o.result IS NULL THEN show(1, r, NULL, now, false)
                ELSE o END;
END $$;

CREATE FUNCTION suspect_keep(p_owner uuid, p_suspect bytea, p_ttl integer)
RETURNS outcome LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = :"schema", pg_catalog, pg_temp AS $$
DECLARE
    now  bigint := clock_us() / 1000;
BEGIN
    UPDATE last_requests x SET until = now + p_ttl * 1000::bigint
        WHERE x.suspect = p_suspect AND x.owner = p_owner AND x.until > now;

    RETURN show(CASE WHEN FOUND THEN 0 ELSE 4 END, NULL::records, NULL, now,
                false);
END $$;
