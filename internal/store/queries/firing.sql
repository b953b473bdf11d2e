-- Who fires the slots of configs.

-- name: TakeFiringSeat :one
-- The time now, and one of the seats of those who fire at the same time. Without one a transaction
-- would only walk over configs that others have locked. It is free again when the transaction ends.
SELECT servo.clock()::timestamptz AS now,
       EXISTS (SELECT FROM generate_series(1, @seats::int) AS seat WHERE pg_try_advisory_xact_lock(hashtext('servo.firing'), seat))::bool AS seated;
