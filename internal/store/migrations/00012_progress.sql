-- +goose Up
-- The sign of life of an attempt and what people read of it are written apart. Heartbeats come
-- every few seconds for every task that runs, say nothing new, and are renewed in place; how far
-- an attempt is gets written when it has changed, and is kept with its run.

ALTER TABLE servo.heartbeats
    DROP COLUMN progress, DROP COLUMN phase, DROP COLUMN stage,
    DROP COLUMN records_extracted, DROP COLUMN records_transformed, DROP COLUMN records_loaded, DROP COLUMN bytes, DROP COLUMN eta;

-- How long a heartbeat renews the lease: as long as its claim has asked for.
ALTER TABLE servo.leases ADD COLUMN lease_ms integer NOT NULL DEFAULT 310000 CHECK (lease_ms > 0);

-- How far each attempt is, or was in the end, in its own numbers. eta is when its worker thinks
-- it ends. stages counts the stages that it has entered, in the last of them since stage_since.
CREATE TABLE servo.attempt_progress (
    tenant_id           uuid        NOT NULL,
    run_id              uuid        NOT NULL,
    task_id             uuid        NOT NULL,
    attempt             integer     NOT NULL,
    updated_at          timestamptz NOT NULL,
    stage_since         timestamptz NOT NULL,
    eta                 timestamptz,
    records_extracted   bigint      NOT NULL CHECK (records_extracted >= 0),
    records_transformed bigint      NOT NULL CHECK (records_transformed >= 0),
    records_loaded      bigint      NOT NULL CHECK (records_loaded >= 0),
    bytes               bigint      NOT NULL CHECK (bytes >= 0),
    fraction            real        NOT NULL CHECK (fraction BETWEEN 0 AND 1),
    stages              integer     NOT NULL CHECK (stages >= 0),
    phase               text        NOT NULL,
    stage               text        NOT NULL,
    PRIMARY KEY (tenant_id, run_id, task_id, attempt)
) PARTITION BY RANGE (run_id);

-- The stages of attempts, as they were entered. A stage ends when the next one begins, or with
-- its attempt: nothing is written for that. Of many the first and the last are kept.
CREATE TABLE servo.attempt_stages (
    tenant_id  uuid        NOT NULL,
    run_id     uuid        NOT NULL,
    task_id    uuid        NOT NULL,
    attempt    integer     NOT NULL,
    seq        integer     NOT NULL CHECK (seq > 0),
    started_at timestamptz NOT NULL,
    phase      text        NOT NULL,
    stage      text        NOT NULL,
    PRIMARY KEY (tenant_id, run_id, task_id, attempt, seq)
) PARTITION BY RANGE (run_id);

ALTER TABLE servo.attempt_progress ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE servo.attempt_stages ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON servo.attempt_progress TO servo_tenant USING (tenant_id = servo.current_tenant());
CREATE POLICY tenant ON servo.attempt_stages TO servo_tenant USING (tenant_id = servo.current_tenant());
CREATE POLICY engine ON servo.attempt_progress TO servo_engine USING (true);
CREATE POLICY engine ON servo.attempt_stages TO servo_engine USING (true);
GRANT SELECT ON servo.attempt_progress, servo.attempt_stages TO servo_tenant;
GRANT SELECT, INSERT, UPDATE ON servo.attempt_progress TO servo_engine;
GRANT SELECT, INSERT, DELETE ON servo.attempt_stages TO servo_engine;

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION servo.make_month(month timestamptz) RETURNS integer
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
    SET timezone = 'UTC' -- adding a month is done in the session's zone
    AS $$
DECLARE
    parent text;
    child  text;
    made   integer := 0;
BEGIN
    FOREACH parent IN ARRAY ARRAY['runs', 'tasks', 'edges', 'run_events', 'task_logs', 'attempt_logs',
                                  'attempt_progress', 'attempt_stages'] LOOP
        child := parent || to_char(month AT TIME ZONE 'UTC', '_YYYY_MM');
        CONTINUE WHEN to_regclass('servo.' || child) IS NOT NULL;
        EXECUTE format('CREATE TABLE servo.%I (LIKE servo.%I INCLUDING ALL) WITH (fillfactor = %s)',
            child, parent, CASE WHEN parent IN ('runs', 'tasks', 'attempt_logs', 'attempt_progress') THEN 50 ELSE 100 END);
        EXECUTE format('ALTER TABLE servo.%I ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', child);
        EXECUTE format('ALTER TABLE servo.%I ATTACH PARTITION servo.%I FOR VALUES FROM (%L) TO (%L)',
            parent, child, servo.uuid_floor(month), servo.uuid_floor(month + interval '1 month'));
        made := made + 1;
    END LOOP;
    RETURN made;
END
$$;
-- +goose StatementEnd

-- Runs of every month that there is may still go on.
SELECT servo.make_month((right(replace(c.relname, '_', '-'), 7) || '-01 00:00:00+00')::timestamptz)
FROM   pg_inherits i
JOIN   pg_class c ON c.oid = i.inhrelid
WHERE  i.inhparent = 'servo.runs'::regclass;
