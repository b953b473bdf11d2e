-- +goose Up
-- Which tenants may use a pool: the owner of one that is owned, the listed ones of a shared
-- one, null for all. One column for both, so that every statement has the same predicate.
ALTER TABLE servo.pools
    ADD COLUMN accepts uuid[] CHECK (cardinality(accepts) BETWEEN 1 AND 1000 AND array_position(accepts, NULL) IS NULL);
UPDATE servo.pools SET accepts = ARRAY[owner_id] WHERE owner_id IS NOT NULL;
ALTER TABLE servo.pools
    ADD CONSTRAINT owner_alone CHECK (owner_id IS NULL OR accepts = ARRAY[owner_id]);
