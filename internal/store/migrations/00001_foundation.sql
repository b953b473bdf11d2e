-- +goose Up
-- Clock, roles and the maker of partitions: what every later table stands on.

CREATE SCHEMA IF NOT EXISTS servo;

-- The one clock of all SQL. Tests replace this function; nothing else reads a clock.
CREATE FUNCTION servo.clock() RETURNS timestamptz
    LANGUAGE sql VOLATILE
    AS 'SELECT clock_timestamp()';

-- The tenant of this transaction, set with SET LOCAL. Unset means NULL, and NULL sees no row.
CREATE FUNCTION servo.current_tenant() RETURNS uuid
    LANGUAGE sql STABLE
    AS $$ SELECT nullif(current_setting('servo.tenant', true), '')::uuid $$;

-- +goose StatementBegin
-- Roles belong to the whole cluster, and several databases of it may be migrated at once.
DO $$
DECLARE
    wanted text;
BEGIN
    FOREACH wanted IN ARRAY ARRAY['servo_tenant', 'servo_engine'] LOOP
        BEGIN
            IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = wanted) THEN
                EXECUTE format('CREATE ROLE %I NOLOGIN NOSUPERUSER NOBYPASSRLS', wanted);
            END IF;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            NULL;
        END;
        -- Who made a role is a member of it, but since PostgreSQL 16 not one who may SET it. Who
        -- may not grant it has been granted it by somebody else, or learns so with the first SET.
        BEGIN
            EXECUTE format('GRANT %I TO CURRENT_USER', wanted);
        EXCEPTION WHEN insufficient_privilege OR unique_violation THEN
            NULL;
        END;
    END LOOP;
END
$$;
-- +goose StatementEnd

GRANT USAGE ON SCHEMA servo TO servo_tenant, servo_engine;
GRANT EXECUTE ON FUNCTION servo.clock(), servo.current_tenant() TO servo_tenant, servo_engine;

-- What must have a single holder: a row, not a session lock, so that it is safe behind a
-- transaction pooler. Work done under a duty holds its row FOR SHARE and checks the epoch.
CREATE TABLE servo.duties (
    name       text        PRIMARY KEY CHECK (name <> ''),
    holder     text        NOT NULL DEFAULT '',
    epoch      bigint      NOT NULL DEFAULT 0,
    expires_at timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 50);
INSERT INTO servo.duties (name) VALUES ('admission');
GRANT SELECT, UPDATE ON servo.duties TO servo_engine;

-- What each applied migration looked like, so that a changed file is noticed.
CREATE TABLE servo.migration_checksums (
    version    bigint      PRIMARY KEY,
    name       text        NOT NULL,
    sha256     text        NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT servo.clock()
);

-- Fencing tokens only grow. A server raises the sequence to the time when it starts, so
-- that after a restore to an earlier point no token is given out twice.
CREATE SEQUENCE servo.fencing_token AS bigint;
GRANT USAGE, SELECT ON SEQUENCE servo.fencing_token TO servo_engine;

-- +goose StatementBegin
CREATE FUNCTION servo.raise_fencing_token() RETURNS bigint
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    -- seconds in the high bits leave a million tokens for each second
    wanted bigint := extract(epoch FROM servo.clock())::bigint << 20;
    current bigint;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('servo.fencing_token', 0));
    SELECT last_value INTO current FROM servo.fencing_token;
    IF current < wanted THEN
        PERFORM setval('servo.fencing_token', wanted);
        RETURN wanted;
    END IF;
    RETURN current;
END
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION servo.raise_fencing_token() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION servo.raise_fencing_token() TO servo_engine;

-- +goose StatementBegin
-- The smallest UUIDv7 of a time: the bound of a partition.
CREATE FUNCTION servo.uuid_floor(at timestamptz) RETURNS uuid
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid
$$;

-- Makes the monthly partitions of the tables of runs, from this month to `ahead` months
-- on. A partition is made whole and then attached, which takes no lock that readers or
-- writers of the parent wait for. Partitions carry no grants: all access is through the
-- parent and its policies.
CREATE FUNCTION servo.make_partitions(ahead integer) RETURNS integer
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET timezone = 'UTC' -- adding a month is done in the session's zone
    AS $$
DECLARE
    parent text;
    child  text;
    month  timestamptz;
    made   integer := 0;
BEGIN
    IF ahead < 0 OR ahead > 60 THEN
        RAISE EXCEPTION 'servo.make_partitions: % months ahead, the range is 0 to 60', ahead;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('servo.make_partitions', 0));
    FOR step IN 0..ahead LOOP
        month := date_trunc('month', servo.clock(), 'UTC') + make_interval(months => step);
        FOREACH parent IN ARRAY ARRAY['runs', 'tasks', 'edges', 'run_events'] LOOP
            child := parent || to_char(month AT TIME ZONE 'UTC', '_YYYY_MM');
            CONTINUE WHEN to_regclass('servo.' || child) IS NOT NULL;
            EXECUTE format('CREATE TABLE servo.%I (LIKE servo.%I INCLUDING ALL) WITH (fillfactor = %s)',
                child, parent, CASE WHEN parent IN ('runs', 'tasks') THEN 50 ELSE 100 END);
            EXECUTE format('ALTER TABLE servo.%I ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', child);
            EXECUTE format('ALTER TABLE servo.%I ATTACH PARTITION servo.%I FOR VALUES FROM (%L) TO (%L)',
                parent, child, servo.uuid_floor(month), servo.uuid_floor(month + interval '1 month'));
            made := made + 1;
        END LOOP;
    END LOOP;
    RETURN made;
END
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION servo.make_partitions(integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION servo.make_partitions(integer) TO servo_engine;
