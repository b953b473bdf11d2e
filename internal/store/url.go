package store

import (
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"go.arco.dev/servo/internal/base/fault"
)

// CheckURL refuses the URL of a database that cannot be read, in words that contain no part of
// it: a password with an unescaped @ or / is taken apart in the wrong place, and its parts are
// then a host, a port or a database to the driver, which names these in its errors.
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
	if _, err := pgxpool.ParseConfig(url); err != nil { // its text may have parts of the password
		return refuse("is not the URL of a database")
	}
	return nil
}
