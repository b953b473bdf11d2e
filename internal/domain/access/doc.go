// Package access is who may do what: roles and their permissions, what each call of the API
// needs, API keys and their lives, and who a caller is. It is pure: it reads no clock, no
// database and no random number of its own, and keeps no secret: of a key it knows the digest.
package access
