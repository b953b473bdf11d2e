// Package access decides who may do what: roles and their permissions, the permission that each API
// method requires, API keys, and callers. It is pure: it reads no clock, no database and no random
// numbers of its own. It keeps no secrets: of a key it has the digest.
package access
