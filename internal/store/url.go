package store

import (
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"go.arco.dev/servo/internal/base/fault"
)

// CheckURL rejects an invalid database URL with an error that contains no part of it: the driver
// splits a password with an unescaped @ or / in the wrong place and names its parts as host, port
// or database in its errors.
func CheckURL(field, url string) error {
	refuse := func(message string) error {
		return fault.New(fault.InvalidArgument, message, fault.Field(field),
			fault.Remedy("check the URL, such as postgres://servo:password@localhost/servo; write @ as %40, / as %2F, : as %3A, # as %23, ? as %3F in user and password"))
	}
	for _, scheme := range []string{"postgres://", "postgresql://"} {
		rest, is := strings.CutPrefix(url, scheme)
		if !is {
			continue
		}
		if end := strings.LastIndexByte(rest, '@'); end >= 0 && strings.ContainsAny(rest[:end], "@/?# ") {
			return refuse("the user or the password has a character that is not escaped")
		}
	}
	if _, err := pgxpool.ParseConfig(url); err != nil { // its text may contain parts of the password
		return refuse("is not the URL of a database")
	}
	return nil
}
