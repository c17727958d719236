-- Included by schema.sql: what requests do to their records.


-- claim ----------------------------------------------------------------------

-- p_flags: 1 may take over an unknown record, with p_fence if that is not 0;
--          2 issued keys only; 4 and 8 a number of a sequence, strict;
--          256 commits with its work: may take over such a record
--
-- A plain SELECT comes first: INSERT ... ON CONFLICT would wait for a service
-- that has updated the record.  An INSERT that follows it can only wait for the
-- claim of another gateway, which commits at once.

CREATE FUNCTION claim_record(
    p_digest bytea, p_owner uuid, p_fingerprint bytea, p_lease bigint,
    p_keep integer, p_ttl integer, p_tombstone integer, p_fence bigint,
    p_granted bigint, p_flags integer, p_note bytea)
RETURNS outcome LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    now_us  bigint := clock_us();
    now     bigint := now_us / 1000;
    work    integer := CASE WHEN p_flags & 256 <> 0 THEN 2 ELSE 0 END;
    locked  boolean := false;       -- by this call
    busy    boolean := false;       -- by another transaction
    r       records;
    st      smallint;
BEGIN
    LOOP
        IF locked THEN
            SELECT * INTO r FROM records x WHERE x.digest = p_digest
                FOR NO KEY UPDATE SKIP LOCKED;

            IF NOT FOUND THEN
                SELECT * INTO r FROM records x WHERE x.digest = p_digest;
                busy := FOUND;
            END IF;
        ELSE
            SELECT * INTO r FROM records x WHERE x.digest = p_digest;
        END IF;

        IF r.digest IS NULL THEN
            IF p_flags & 2 <> 0 THEN
                RETURN show(3, r, NULL, now, false);
            END IF;

            r := new_record(p_digest, p_owner, p_fingerprint, p_lease, p_keep,
                            p_ttl, p_tombstone,
                            CASE WHEN p_granted > 0 THEN p_granted
                                 ELSE now_us END, work, p_note, now);

            INSERT INTO records SELECT (r).* ON CONFLICT DO NOTHING;

            IF FOUND THEN
                RETURN show(1, r, reads(r, now), now, false);
            END IF;

            CONTINUE;
        END IF;

        st := reads(r, now);

        -- what most duplicates meet: nothing is locked or written

        IF st = 4 AND r.state = 4 THEN
            RETURN show(2, r, st, now, true);
        END IF;

        IF busy THEN

            -- another gateway takes it, or its work is under way

            IF coalesce(st, 0) < 2 OR r.owner = p_owner AND r.state = 2 THEN
                RETURN show(6, r, st, now, false);
            END IF;

            RETURN show(2, r, (CASE WHEN st < 5 THEN 2 ELSE 5 END)::smallint,
                        now, false);
        END IF;

        IF p_flags & 2 <> 0 AND coalesce(st, 0) = 0 THEN
            RETURN show(3, r, st, now, false);
        END IF;

        IF r.owner = p_owner AND st IS NOT NULL
           AND NOT (st = 4 AND r.state <> 4)
        THEN
            IF r.state = 2 AND st < 4 THEN
                IF NOT locked THEN
                    locked := true;
                    CONTINUE;
                END IF;

                r.lease := now + p_lease;
                r.fence := greatest(r.fence, p_granted);
                r.gone := store(r, now);
                RETURN show(1, r, reads(r, now), now, false);
            END IF;

            RETURN show(CASE WHEN st IN (0, 1) THEN 4 ELSE 2 END, r, st, now,
                        true);
        END IF;

        IF st IN (0, 1) AND position(uuid_send(p_owner) IN r.dead) > 0 THEN
            RETURN show(4, r, st, now, false);
        END IF;

        IF st IN (2, 5)
           OR st = 3
              AND NOT (substr(p_fingerprint, 1, 32)
                           = substr(r.fingerprint, 1, 32)
                       AND (p_flags & 256 <> 0 AND r.flags & 2 <> 0
                            OR p_flags & 1 <> 0 AND p_fence IN (0, r.fence)))
        THEN
            RETURN show(2, r, st, now, true);
        END IF;

        IF NOT locked THEN
            locked := true;
            CONTINUE;
        END IF;

        IF st = 4 THEN

            -- its work has committed: this is the answer from now on

            r.state := 4;
            r.lease := r.until - r.ttl * 1000::bigint;
            r.gone := store(r, now);
            RETURN show(2, r, st, now, true);
        END IF;

        IF st IS NULL THEN
            r.dead := '';
            r.attempts := 0;
            r.issued := 0;
        ELSE
            r.dead := add_dead(r.dead, r.owner);
        END IF;

        IF st IS DISTINCT FROM 3 THEN
            r.created := now / 1000;
        END IF;

        r.state := 2;
        r.owner := p_owner;
        r.fingerprint := p_fingerprint;
        r.note := p_note;
        r.lease := now + p_lease;
        r.keep := p_keep;
        r.ttl := p_ttl;
        r.tombstone := p_tombstone;
        r.flags := work;
        r.status := 0;
        r.until := 0;
        r.head := NULL;
        r.type := NULL;
        r.body := NULL;
        r.attempts := r.attempts + 1;
        r.fence := greatest(r.fence + 1, CASE WHEN p_granted > 0 THEN p_granted
                                              ELSE now_us END);
        r.gone := store(r, now);

        RETURN show(1, r, reads(r, now), now, false);
    END LOOP;
END $$;

-- The mark of a sequence is locked by every claim and release of its numbers.
-- A claim that finds a record moves the mark as well.

CREATE FUNCTION claim_number(
    p_digest bytea, p_owner uuid, p_fingerprint bytea, p_lease bigint,
    p_keep integer, p_ttl integer, p_tombstone integer, p_fence bigint,
    p_granted bigint, p_flags integer, p_note bytea,
    p_epoch bigint, p_number bigint, p_next bigint)
RETURNS outcome LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    now     bigint := clock_us() / 1000;
    gapless boolean := p_flags & 8 <> 0;
    zero    CONSTANT bigint := -9223372036854775808;
    in_turn boolean;
    wanted  bigint;
    ends    bigint;
    m       sequences;
    r       records;
    o       outcome;
    st      smallint;
BEGIN
    SELECT * INTO m FROM sequences s
        WHERE s.sequence = substr(p_digest, 1, 16) FOR UPDATE;

    IF NOT FOUND THEN
        INSERT INTO sequences VALUES (substr(p_digest, 1, 16), NULL, NULL,
                                      now + 60000)
            ON CONFLICT DO NOTHING;
        SELECT * INTO m FROM sequences s
            WHERE s.sequence = substr(p_digest, 1, 16) FOR UPDATE;
    END IF;

    IF m.until <= now THEN
        m.epoch := NULL;
    END IF;

    IF m.epoch IS NOT NULL AND p_granted = 0 THEN
        SELECT * INTO r FROM records x WHERE x.digest = p_digest;
        st := reads(r, now);

        IF p_epoch < m.epoch THEN
            in_turn := false;
            gapless := false;

        ELSIF p_epoch > m.epoch THEN
            wanted := zero;
            in_turn := coalesce(st, 0) <> 0 OR NOT gapless
                       OR p_number <= zero + 1;

        ELSIF p_number < m.next THEN
            wanted := m.next;
            in_turn := st IS NOT NULL;

        ELSE
            wanted := m.next;
            in_turn := coalesce(st, 0) <> 0 OR NOT gapless
                       OR p_number = m.next;
        END IF;

        IF NOT in_turn THEN
            o.result := 5;
            o.now := now;
            o.expected := CASE WHEN gapless THEN wanted END;
            RETURN o;
        END IF;
    END IF;

    o := claim_record(p_digest, p_owner, p_fingerprint, p_lease, p_keep, p_ttl,
                      p_tombstone, p_fence, p_granted, p_flags, p_note);

    IF o.result NOT IN (1, 2) THEN
        RETURN o;
    END IF;

    ends := greatest(m.until, now + (greatest(p_ttl + p_tombstone::bigint,
                                              2592000) + 86400) * 1000);

    IF m.epoch IS NULL OR p_epoch > m.epoch
       OR p_epoch = m.epoch AND p_number >= m.next
    THEN
        UPDATE sequences s SET epoch = p_epoch, next = p_next, until = ends
            WHERE s.sequence = m.sequence;

    ELSIF o.result = 1 THEN
        UPDATE sequences s SET until = ends WHERE s.sequence = m.sequence;
    END IF;

    RETURN o;
END $$;

CREATE FUNCTION claim(
    p_digest bytea, p_owner uuid, p_fingerprint bytea, p_lease bigint,
    p_keep integer, p_ttl integer, p_tombstone integer, p_fence bigint,
    p_granted bigint, p_flags integer, p_note bytea,
    p_epoch bigint, p_number bigint, p_next bigint)
RETURNS outcome LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = :"schema", pg_catalog, pg_temp AS $$
BEGIN
    IF p_flags & 4 <> 0 THEN
        RETURN claim_number(p_digest, p_owner, p_fingerprint, p_lease, p_keep,
                            p_ttl, p_tombstone, p_fence, p_granted, p_flags,
                            p_note, p_epoch, p_number, p_next);
    END IF;

    RETURN claim_record(p_digest, p_owner, p_fingerprint, p_lease, p_keep,
                        p_ttl, p_tombstone, p_fence, p_granted, p_flags,
                        p_note);
END $$;


-- What an owner says of its record -------------------------------------------

-- The lock is taken without waiting; 6: it is held, ask again.  A record that
-- is not there, or that is free and was not given up by this owner, was lost by
-- the store and is written anew.  Not one that commits with its work: a server
-- that has lost the record has lost the work, too.

CREATE FUNCTION settle(
    p_op text, p_digest bytea, p_owner uuid, p_fingerprint bytea,
    p_lease bigint, p_keep integer, p_ttl integer, p_tombstone integer,
    p_fence bigint, p_flags integer, p_note bytea,
    p_epoch bigint, p_number bigint, p_next bigint,
    p_kept boolean, p_status integer, p_head bytea, p_body bytea)
RETURNS outcome LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    now_us  bigint := clock_us();
    now     bigint := now_us / 1000;
    work    integer := CASE WHEN p_flags & 256 <> 0 THEN 2 ELSE 0 END;
    result  integer := 4;
    changed boolean := false;
    fresh   boolean := false;
    last    boolean := false;
    m       sequences;
    r       records;
    st      smallint;
BEGIN
    IF p_op = 'release' AND p_flags & 4 <> 0 THEN
        SELECT * INTO m FROM sequences s
            WHERE s.sequence = substr(p_digest, 1, 16) FOR UPDATE;
        last := m.epoch = p_epoch AND m.next = p_next;
    END IF;

    SELECT * INTO r FROM records x WHERE x.digest = p_digest
        FOR NO KEY UPDATE SKIP LOCKED;

    IF NOT FOUND THEN
        SELECT * INTO r FROM records x WHERE x.digest = p_digest;

        IF FOUND THEN
            st := reads(r, now);

            -- the lock of its work protects it as long as the lease would

            IF p_op = 'renew' AND r.owner = p_owner AND r.state = 2 THEN
                RETURN show(0, r, st, now, false);
            END IF;

            RETURN show(CASE WHEN r.owner = p_owner OR coalesce(st, 0) < 2
                             THEN 6 ELSE 4 END,
                        r, CASE WHEN st = 4 AND r.state <> 4 THEN 2
                                ELSE st END::smallint, now, true);
        END IF;
    END IF;

    st := reads(r, now);

    IF st IS NOT NULL AND r.flags & 4 <> 0 AND r.state IN (2, 3) THEN

        -- its work has committed: the word of its owner adds the header, and
        -- anything else gets the answer of the service

        IF r.owner <> p_owner AND st = 2 THEN
            RETURN show(4, r, st, now, false);
        END IF;

        IF r.owner = p_owner AND p_op = 'renew' AND st = 2 THEN
            r.lease := now + p_lease;
            r.gone := store(r, now);
            RETURN show(0, r, 2::smallint, now, false);
        END IF;

        IF NOT (r.owner = p_owner AND p_op = 'complete' AND r.state = 2
                AND st = 2 AND r.status = p_status AND p_kept)
        THEN
            r.state := 4;
            r.lease := r.until - r.ttl * 1000::bigint;
            r.gone := store(r, now);
            RETURN show(4, r, 4::smallint, now, true);
        END IF;

    ELSIF st IS NULL
          OR st IN (0, 1) AND r.owner <> p_owner AND p_op <> 'release'
             AND position(uuid_send(p_owner) IN r.dead) = 0
    THEN
        IF p_op = 'release' THEN
            IF p_flags & 4 <> 0 THEN

                -- a free record would read as claimed and given back

                RETURN show(0, r, NULL, now, false);
            END IF;

        ELSIF work <> 0 THEN
            RETURN show(4, r, st, now, false);
        END IF;

        IF r.digest IS NULL THEN
            r := new_record(p_digest, p_owner, p_fingerprint, 0, p_keep, p_ttl,
                            p_tombstone,
                            CASE WHEN p_fence > 0 THEN p_fence ELSE now_us END,
                            work, p_note, now);
            INSERT INTO records SELECT (r).* ON CONFLICT DO NOTHING;

            IF NOT FOUND THEN
                RETURN ROW(6, now, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
                           NULL, NULL, NULL, NULL, NULL, NULL, NULL)::outcome;
            END IF;

        ELSE
            IF st IS NULL THEN
                r.dead := '';
                r.attempts := 0;
                r.issued := 0;
                r.fence := 0;
            ELSE
                r.dead := add_dead(r.dead, r.owner);
            END IF;

            r.attempts := r.attempts + 1;
            r.fence := greatest(r.fence + 1, CASE WHEN p_fence > 0 THEN p_fence
                                                  ELSE now_us END);
            r.created := now / 1000;
            r.state := 2;
            r.owner := p_owner;
            r.fingerprint := p_fingerprint;
            r.note := p_note;
            r.lease := now;
            r.keep := p_keep;
            r.ttl := p_ttl;
            r.tombstone := p_tombstone;
            r.flags := work;
            r.status := 0;
            r.until := 0;
            r.head := NULL;
            r.type := NULL;
            r.body := NULL;
        END IF;

        st := 2;
        fresh := true;
    END IF;

    IF p_op = 'complete' THEN
        IF r.owner = p_owner AND r.state IN (2, 3) THEN
            r.state := 4;
            r.status := p_status;
            r.flags := r.flags & 6 | CASE WHEN p_kept THEN 1 ELSE 0 END;
            r.lease := now;
            r.until := now + p_ttl * 1000::bigint;
            r.ttl := p_ttl;
            r.tombstone := p_tombstone;
            r.note := p_note;
            r.head := p_head;
            r.type := NULL;
            r.body := p_body;
            r.dead := '';
            result := 0;
            changed := true;

        ELSIF r.owner = p_owner AND r.state = 4
              AND (r.flags & 4 = 0 OR r.head IS NOT NULL)
        THEN
            result := 0;
        END IF;

    ELSIF p_op = 'release' THEN
        IF r.owner = p_owner AND r.state = 2 THEN
            r := free(r, now, NOT fresh, stub_ttl(p_digest, now));
            result := 0;
            changed := true;

            IF last AND NOT fresh THEN

                -- it was the last number: the next claim may have it

                UPDATE sequences s SET next = p_number
                    WHERE s.sequence = m.sequence;
            END IF;

        ELSIF st IN (0, 1) THEN
            IF r.owner <> p_owner THEN
                r.dead := add_dead(r.dead, r.owner);
                r.owner := p_owner;
            END IF;

            IF st = 0 THEN
                r.until := now + r.keep * 1000::bigint;
            END IF;

            result := 0;
            changed := true;

        ELSIF r.owner <> p_owner AND r.state < 4 THEN
            r.dead := add_dead(r.dead, p_owner);
            changed := true;
        END IF;

    ELSIF p_op = 'mark_unknown' THEN
        IF r.owner = p_owner AND r.state = 2 THEN
            r.state := 3;
            r.lease := now;
            r.note := coalesce(p_note, r.note);
            result := 0;
            changed := true;

        ELSIF r.owner = p_owner AND st = 3 THEN
            result := 0;
        END IF;

    ELSIF r.owner = p_owner AND r.state = 2 THEN    -- renew
        r.lease := now + p_lease;
        result := 0;
        changed := true;
    END IF;

    IF changed THEN
        r.gone := store(r, now);
    END IF;

    RETURN show(result, r, reads(r, now), now,
                p_op = 'complete' AND result = 4);
END $$;

CREATE FUNCTION complete(
    p_digest bytea, p_owner uuid, p_fingerprint bytea, p_keep integer,
    p_ttl integer, p_tombstone integer, p_fence bigint, p_flags integer,
    p_note bytea, p_kept boolean, p_status integer, p_head bytea, p_body bytea)
RETURNS outcome LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = :"schema", pg_catalog, pg_temp AS $$
DECLARE
    now  bigint := clock_us() / 1000;
    r    records;
BEGIN
    -- nearly always: one statement, which does not wait for the lock

    UPDATE records x SET
        state = 4, status = p_status, lease = now,
        flags = x.flags & 2 | CASE WHEN p_kept THEN 1 ELSE 0 END,
        until = now + p_ttl * 1000::bigint, ttl = p_ttl,
        tombstone = p_tombstone,
        gone = now + (p_ttl + p_tombstone::bigint) * 1000,
        note = p_note, head = p_head, type = NULL, body = p_body, dead = ''
    WHERE x.ctid = (SELECT y.ctid FROM records y
                    WHERE y.digest = p_digest AND y.owner = p_owner
                          AND y.state IN (2, 3) AND y.flags & 4 = 0
                          AND y.gone > now
                    FOR NO KEY UPDATE SKIP LOCKED)
    RETURNING x.* INTO r;

    IF FOUND THEN
        RETURN show(0, r, reads(r, now), now, false);
    END IF;

    RETURN settle('complete', p_digest, p_owner, p_fingerprint, 0, p_keep,
                  p_ttl, p_tombstone, p_fence, p_flags, p_note, 0, 0, 0,
                  p_kept, p_status, p_head, p_body);
END $$;

CREATE FUNCTION release(
    p_digest bytea, p_owner uuid, p_fingerprint bytea, p_keep integer,
    p_flags integer, p_epoch bigint, p_number bigint, p_next bigint)
RETURNS outcome LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = :"schema", pg_catalog, pg_temp AS $$
BEGIN
    RETURN settle('release', p_digest, p_owner, p_fingerprint, 0, p_keep, 0, 0,
                  0, p_flags, NULL, p_epoch, p_number, p_next, false, 0, NULL,
                  NULL);
END $$;

CREATE FUNCTION mark_unknown(
    p_digest bytea, p_owner uuid, p_fingerprint bytea, p_keep integer,
    p_ttl integer, p_tombstone integer, p_fence bigint, p_flags integer,
    p_note bytea)
RETURNS outcome LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = :"schema", pg_catalog, pg_temp AS $$
BEGIN
    RETURN settle('mark_unknown', p_digest, p_owner, p_fingerprint, 0, p_keep,
                  p_ttl, p_tombstone, p_fence, p_flags, p_note, 0, 0, 0, false,
                  0, NULL, NULL);
END $$;

-- The leases of a worker in one call, in the order of their digests; the
-- results are in the order of the arrays.

CREATE FUNCTION renew(
    p_digest bytea[], p_owner uuid[], p_fingerprint bytea[], p_lease bigint[],
    p_keep integer[], p_fence bigint[], p_flags integer[])
RETURNS smallint[] LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = :"schema", pg_catalog, pg_temp AS $$
DECLARE
    results  smallint[] := array_fill(4::smallint,
                                      ARRAY[cardinality(p_digest)]);
    i        integer;
    o        outcome;
BEGIN
    FOR i IN SELECT u.i FROM unnest(p_digest) WITH ORDINALITY u(d, i)
             ORDER BY u.d
    LOOP
        o := settle('renew', p_digest[i], p_owner[i], p_fingerprint[i],
                    p_lease[i], p_keep[i], 0, 0, p_fence[i], p_flags[i], NULL,
                    0, 0, 0, false, 0, NULL, NULL);
        results[i] := o.result;
    END LOOP;

    RETURN results;
END $$;
