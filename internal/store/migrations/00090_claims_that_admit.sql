-- +goose Up
-- A claim admits ready tasks itself. The asset of a task decides what its tenant is charged, so
-- that every queue has it: a round reads no row of tasks for tasks that it leaves.
ALTER TABLE servo.waiting ADD COLUMN asset text NOT NULL DEFAULT '';
ALTER TABLE servo.ready_q ADD COLUMN asset text NOT NULL DEFAULT '';
ALTER TABLE servo.retry_q ADD COLUMN asset text NOT NULL DEFAULT '';
-- The owner of the tables is bound by their policies, so this is done as the engine.
GRANT UPDATE (asset) ON servo.ready_q, servo.retry_q TO servo_engine;
SET LOCAL ROLE servo_engine;
UPDATE servo.waiting q SET asset = t.asset FROM servo.tasks t WHERE t.tenant_id = q.tenant_id AND t.run_id = q.run_id AND t.id = q.task_id;
UPDATE servo.ready_q q SET asset = t.asset FROM servo.tasks t WHERE t.tenant_id = q.tenant_id AND t.run_id = q.run_id AND t.id = q.task_id;
UPDATE servo.retry_q q SET asset = t.asset FROM servo.tasks t WHERE t.tenant_id = q.tenant_id AND t.run_id = q.run_id AND t.id = q.task_id;
RESET ROLE;
REVOKE UPDATE (asset) ON servo.ready_q, servo.retry_q FROM servo_engine;

-- When a claim last admitted tasks of the pool: the admission loop leaves
-- a pool to its claims as long as they do.
ALTER TABLE servo.pool_clocks ADD COLUMN claimed_at timestamptz NOT NULL DEFAULT '0001-01-01 00:00:00+00';
