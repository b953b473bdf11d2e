-- +goose Up
-- Manifests are stored once by their digest, for the deployments of all tenants. The table has no tenant:
-- a tenant reaches a manifest through a deployment or a run of its own, which the store reads first.
CREATE TABLE servo.manifests (
    digest text    NOT NULL CHECK (digest <> ''), -- of the whole manifest
    ix     integer NOT NULL CHECK (ix >= 0),
    size   integer NOT NULL CHECK (size > 0),     -- of the whole manifest, in bytes
    chunk  bytea   NOT NULL,
    PRIMARY KEY (digest, ix)
);
GRANT SELECT, INSERT ON servo.manifests TO servo_engine;

SET LOCAL ROLE servo_engine;
INSERT INTO servo.manifests (digest, ix, size, chunk)
SELECT m.digest, n.ix, length(m.body), substring(m.body FROM n.ix * 262144 + 1 FOR 262144)
FROM   (SELECT DISTINCT ON (d.digest) d.digest, convert_to(d.manifest::text, 'UTF8') AS body FROM servo.deployments d ORDER BY d.digest, d.id) AS m
CROSS  JOIN LATERAL generate_series(0, (length(m.body) - 1) / 262144) AS n(ix);
RESET ROLE;

ALTER TABLE servo.deployments DROP COLUMN manifest;
