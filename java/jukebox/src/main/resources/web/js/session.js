// The account that uses the page.

/** `account` is {id, name}, or null before the login; `uploadBytes` is the limit of a file. */
export const session = { account: null, uploadBytes: 0 };
