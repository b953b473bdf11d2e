-- +goose Up
-- What attempts write to their logs: chunks of lines as their workers send them, kept with
-- the run and dropped with it. No events: nothing is decided by them.

CREATE TABLE servo.task_logs (
    tenant_id uuid        NOT NULL,
    run_id    uuid        NOT NULL,
    task_id   uuid        NOT NULL,
    attempt   integer     NOT NULL,
    seq       bigint      NOT NULL CHECK (seq > 0),
    at        timestamptz NOT NULL,
    bytes     integer     NOT NULL CHECK (bytes > 0),
    text      text        NOT NULL,
    PRIMARY KEY (tenant_id, run_id, task_id, attempt, seq)
) PARTITION BY RANGE (run_id);

-- One row for each attempt that has logged: how much of it is kept and what was dropped out
-- of its middle. dropped_seq is the last chunk that was dropped.
CREATE TABLE servo.attempt_logs (
    tenant_id     uuid    NOT NULL,
    run_id        uuid    NOT NULL,
    task_id       uuid    NOT NULL,
    attempt       integer NOT NULL,
    kept          bigint  NOT NULL CHECK (kept >= 0),
    dropped_bytes bigint  NOT NULL DEFAULT 0,
    dropped_seq   bigint  NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant_id, run_id, task_id, attempt)
) PARTITION BY RANGE (run_id);

ALTER TABLE servo.task_logs ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE servo.attempt_logs ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON servo.task_logs TO servo_tenant USING (tenant_id = servo.current_tenant());
CREATE POLICY tenant ON servo.attempt_logs TO servo_tenant USING (tenant_id = servo.current_tenant());
CREATE POLICY engine ON servo.task_logs TO servo_engine USING (true);
CREATE POLICY engine ON servo.attempt_logs TO servo_engine USING (true);
GRANT SELECT ON servo.task_logs, servo.attempt_logs TO servo_tenant;
GRANT SELECT, INSERT, DELETE ON servo.task_logs TO servo_engine;
GRANT SELECT, INSERT, UPDATE ON servo.attempt_logs TO servo_engine;

-- +goose StatementBegin
-- Makes the partitions of one month, those that are not there. A partition is made whole and
-- then attached, which takes no lock that readers or writers of the parent wait for.
-- Partitions carry no grants: all access is through the parent and its policies.
CREATE FUNCTION servo.make_month(month timestamptz) RETURNS integer
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
    SET timezone = 'UTC' -- adding a month is done in the session's zone
    AS $$
DECLARE
    parent text;
    child  text;
    made   integer := 0;
BEGIN
    FOREACH parent IN ARRAY ARRAY['runs', 'tasks', 'edges', 'run_events', 'task_logs', 'attempt_logs'] LOOP
        child := parent || to_char(month AT TIME ZONE 'UTC', '_YYYY_MM');
        CONTINUE WHEN to_regclass('servo.' || child) IS NOT NULL;
        EXECUTE format('CREATE TABLE servo.%I (LIKE servo.%I INCLUDING ALL) WITH (fillfactor = %s)',
            child, parent, CASE WHEN parent IN ('runs', 'tasks', 'attempt_logs') THEN 50 ELSE 100 END);
        EXECUTE format('ALTER TABLE servo.%I ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', child);
        EXECUTE format('ALTER TABLE servo.%I ATTACH PARTITION servo.%I FOR VALUES FROM (%L) TO (%L)',
            parent, child, servo.uuid_floor(month), servo.uuid_floor(month + interval '1 month'));
        made := made + 1;
    END LOOP;
    RETURN made;
END
$$;

-- Makes the monthly partitions of the tables of runs, from this month to `ahead` months on.
CREATE OR REPLACE FUNCTION servo.make_partitions(ahead integer) RETURNS integer
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET timezone = 'UTC'
    AS $$
DECLARE
    made integer := 0;
BEGIN
    IF ahead < 0 OR ahead > 60 THEN
        RAISE EXCEPTION 'servo.make_partitions: % months ahead, the range is 0 to 60', ahead;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('servo.make_partitions', 0));
    FOR step IN 0..ahead LOOP
        made := made + servo.make_month(date_trunc('month', servo.clock(), 'UTC') + make_interval(months => step));
    END LOOP;
    RETURN made;
END
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION servo.make_month(timestamptz) FROM PUBLIC;

-- Runs of every month that there is may still log.
SELECT servo.make_month((right(replace(c.relname, '_', '-'), 7) || '-01 00:00:00+00')::timestamptz)
FROM   pg_inherits i
JOIN   pg_class c ON c.oid = i.inhrelid
WHERE  i.inhparent = 'servo.runs'::regclass;
