-- Transactions that fire the slots of configs.

-- name: TakeFiringSeat :one
-- The current time, and one of the seats for transactions that fire at the same time. Without a limit,
-- transactions would scan configs that others have locked. The end of the transaction frees the seat.
SELECT servo.clock()::timestamptz AS now,
       EXISTS (SELECT FROM generate_series(1, @seats::int) AS seat WHERE pg_try_advisory_xact_lock(hashtext('servo.firing'), seat))::bool AS seated;
