-- +goose Up
-- What a task's plan made it wait for: whoever claims the task gets their results. Edges
-- lead from an upstream to what waits for it, the other way round, and know the barriers of
-- fan-outs too.
ALTER TABLE servo.tasks ADD COLUMN upstream uuid[];

-- Tasks that are there already, by the events that made them. The owner of the tables is
-- bound by their policies like everybody else, so this is done as the engine.
SET LOCAL ROLE servo_engine;
WITH made AS (
    SELECT e.tenant_id, e.run_id, (spec ->> 'id')::uuid AS id, (spec ->> 'ix')::int AS ix, spec -> 'up' AS up
    FROM   servo.run_events e
    CROSS  JOIN LATERAL jsonb_array_elements(e.data -> 'tasks') AS spec
    WHERE  e.type IN ('run.created', 'run.tasks_added')
), waits AS (
    SELECT m.tenant_id, m.run_id, m.id, array_agg(u.id ORDER BY x.nth) AS upstream
    FROM   made m
    CROSS  JOIN LATERAL jsonb_array_elements_text(m.up) WITH ORDINALITY AS x(ix, nth)
    JOIN   made u ON u.tenant_id = m.tenant_id AND u.run_id = m.run_id AND u.ix = x.ix::int
    GROUP  BY m.tenant_id, m.run_id, m.id
)
UPDATE servo.tasks t
SET    upstream = w.upstream
FROM   waits w
WHERE  t.tenant_id = w.tenant_id AND t.run_id = w.run_id AND t.id = w.id;
RESET ROLE;
