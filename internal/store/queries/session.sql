-- name: EnterEngine :exec
-- Role and planner settings of one engine transaction, in one statement. The
-- statements of the engine are all keyed probes for a batch of known rows; without the settings stale
-- statistics of a queue table that was empty a second ago choose whole-table plans.
-- They make estimated costs meaningless, and PostgreSQL compiles statements with high estimates:
-- seconds for a statement that runs in microseconds. So jit is off wherever a role is set.
-- Between two statements the engine only computes. A transaction that is idle for two seconds was
-- stopped or disconnected, and others wait for its locks: PostgreSQL ends it.
SELECT set_config('role', 'servo_engine', true),
       set_config('idle_in_transaction_session_timeout', '2s', true),
       set_config('jit', 'off', true),
       set_config('enable_seqscan', 'off', true),
       set_config('enable_hashjoin', 'off', true),
       set_config('enable_mergejoin', 'off', true),
       set_config('plan_cache_mode', 'force_generic_plan', true);

-- name: AllowPause :exec
-- For a transaction that computes for longer between two statements.
SELECT set_config('idle_in_transaction_session_timeout', @most::text, true);

-- name: EnterTenant :exec
-- Reads of one tenant use keys, with any statistics, and are planned for their arguments: unused
-- filters disappear.
SELECT set_config('role', 'servo_tenant', true), set_config('servo.tenant', @tenant::text, true),
       set_config('jit', 'off', true),
       set_config('enable_seqscan', 'off', true),
       set_config('enable_bitmapscan', 'off', true),
       set_config('enable_hashjoin', 'off', true),
       set_config('enable_mergejoin', 'off', true),
       set_config('plan_cache_mode', 'force_custom_plan', true);

-- name: EnterEngineRead :exec
-- For reads of whole tables (verify): the role of the engine with the planner's default settings.
SELECT set_config('role', 'servo_engine', true), set_config('jit', 'off', true);

-- name: SessionSettings :one
-- The settings of this transaction that correctness, durability and speed rely on.
SELECT current_setting('jit')::text AS jit, current_setting('transaction_isolation')::text AS isolation,
       current_setting('transaction_read_only')::text AS read_only, current_setting('synchronous_commit')::text AS synchronous_commit;

-- name: Clock :one
SELECT servo.clock()::timestamptz AS now;

-- name: RaiseFencingToken :one
SELECT servo.raise_fencing_token()::bigint AS token;

-- name: MakePartitions :one
SELECT servo.make_partitions(@ahead::int)::int AS made;
