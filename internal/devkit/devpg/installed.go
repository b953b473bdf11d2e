package devpg

import "context"

// Installed names the PostgreSQL that a new cluster would be made with, or says how to get
// one.
func Installed(ctx context.Context) (string, error) {
	own, err := ownerOf("")
	if err != nil {
		return "", err
	}
	found, err := systemFinder(own).find(ctx)
	if err != nil {
		return "", err
	}
	return found[0].String(), nil
}
