/**
 * A process whose threads are clients of a history (docs/history.md). The tests in {@code tests/tests/histories} start
 * it, request transactions on its standard input, and record what it replies on its standard output. A line is a
 * request or a reply.
 *
 * <table>
 * <caption>Requests</caption>
 * <tr><td>{@code object KEY OID}</td><td>gives an object the key that later requests use; it has no reply</td></tr>
 * <tr><td>{@code create NUMBER KEY [BALANCE]}</td><td>creates an empty list, or an account</td></tr>
 * <tr><td>{@code run NUMBER CLIENT OPTIONS ACT…}</td><td>runs a transaction in the thread of a client; options are separated by
 * commas, see {@link io.mortar.histories.Request.Option}, and {@code -} is none</td></tr>
 * </table>
 *
 * <p>Acts are {@code read:KEY}, {@code append:KEY:ELEMENT}, {@code balance:KEY} and {@code add:KEY:AMOUNT}.
 *
 * <table>
 * <caption>Replies, after the number of the request; 0 is the process</caption>
 * <tr><td>{@code ready}</td><td>the process is connected</td></tr>
 * <tr><td>{@code created OID}</td><td>the identifier of the new object</td></tr>
 * <tr><td>{@code steps STEPS}</td><td>the transaction is going to commit; the steps are those of a history, as JSON. A transaction
 * without this reply has not been committed and will not be</td></tr>
 * <tr><td>{@code committed}</td><td></td></tr>
 * <tr><td>{@code conflict OIDS MESSAGE}</td><td>the exception of the API for conflicts; the objects that it names are separated by
 * commas, and {@code -} is none</td></tr>
 * <tr><td>{@code retryable MESSAGE}</td><td>an exception that the API defines as retryable, or a query that took too long</td></tr>
 * <tr><td>{@code unknown MESSAGE}</td><td>it is not known whether the transaction was committed</td></tr>
 * <tr><td>{@code error MESSAGE}</td><td>another exception, which no client should get</td></tr>
 * </table>
 */
package io.mortar.histories;
