package devpg

import "context"

// Installed returns the PostgreSQL of new clusters, or a fault with instructions to install one.
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
