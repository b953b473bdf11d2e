-- Manifests, stored once by digest.

-- name: HasManifest :one
SELECT EXISTS (SELECT FROM servo.manifests m WHERE m.digest = @digest::text) AS stored;

-- name: InsertManifest :exec
-- Another transaction may store the same manifest at the same time: the chunks are equal.
INSERT INTO servo.manifests (digest, ix, size, chunk)
SELECT @digest::text, n.ix - 1, @size::int, n.chunk
FROM   unnest(@chunks::bytea[]) WITH ORDINALITY AS n(chunk, ix)
ON CONFLICT DO NOTHING;

-- name: Manifests :many
SELECT m.digest, m.size, m.chunk FROM servo.manifests m WHERE m.digest = ANY (@digests::text[]) ORDER BY m.digest, m.ix;
