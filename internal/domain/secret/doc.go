// Package secret has references to secrets, the rules that permit their use, and the forms in which a
// value can leak. It is pure, and never reads a secret.
package secret
